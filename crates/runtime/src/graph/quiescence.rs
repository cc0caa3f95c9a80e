//! The rest of what came at a context, as it is reported.

/// The rest at a context of what came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Quiescence {
    /// Whether nothing is left. Two contexts that say so one after the other may have a batch between them: it is certain when all say so
    /// twice and have moved nothing meanwhile.
    pub(crate) is_dry: bool,
    /// A number that changes when a node runs on something.
    pub(crate) moved: u64,
}
