//! The two forms of a mailbox's side and of its messages, and the one place that distinguishes them: the choice is a
//! branch, since
//! a message in shared memory costs less than a dynamic call would add.

/// Something in memory shared with the daemon, or the same over packets.
pub(super) enum Carried<M, P> {
    Memory(M),
    Packets(P),
}

/// Does the same with either.
macro_rules! carried {
    ($carried:expr, $either:ident => $result:expr) => {
        match $carried {
            Carried::Memory($either) => $result,
            Carried::Packets($either) => $result,
        }
    };
}
pub(super) use carried;
