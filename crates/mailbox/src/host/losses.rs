//! Reasons for which no reader gets a message, and the numbers of such messages.

/// Why a message of a mailbox was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum MessageLoss {
    /// It was with an attached reader that died, and had not been ended.
    ReaderGone,
    /// Its writer's session ended before there was memory for it in the mailbox.
    WriterGone,
    /// It is longer than its remote reader, the mailbox's task or the daemon takes.
    TooLong,
    /// The mailbox that its task writes into was full.
    Full,
    /// There was no memory for it, or for what its task makes of it.
    NoMemory,
    /// Its task asked for a service of the host, which had no place for the request.
    ServiceBusy,
    /// Its task called a client that takes no calls now.
    UpcallRefused,
    /// The mailbox was deleted while the message was in it, or on its way to it.
    Undeliverable,
}

impl MessageLoss {
    const ALL: [MessageLoss; 8] = [
        MessageLoss::ReaderGone,
        MessageLoss::WriterGone,
        MessageLoss::TooLong,
        MessageLoss::Full,
        MessageLoss::NoMemory,
        MessageLoss::ServiceBusy,
        MessageLoss::UpcallRefused,
        MessageLoss::Undeliverable,
    ];

    /// Its name in lists and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MessageLoss::ReaderGone => "reader_gone",
            MessageLoss::WriterGone => "writer_gone",
            MessageLoss::TooLong => "too_long",
            MessageLoss::Full => "full",
            MessageLoss::NoMemory => "no_memory",
            MessageLoss::ServiceBusy => "service_busy",
            MessageLoss::UpcallRefused => "upcall_refused",
            MessageLoss::Undeliverable => "undeliverable",
        }
    }

    /// The reason in words, for a mailbox's writers.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            MessageLoss::ReaderGone => "a reader on the daemon's machine had them and died without having ended them",
            MessageLoss::WriterGone => "a writer's session ended before there was memory for them",
            MessageLoss::TooLong => "they are longer than a remote reader, the mailbox's task or the daemon takes",
            MessageLoss::Full => "the mailbox that the task writes into was full",
            MessageLoss::NoMemory => "there was no memory for them",
            MessageLoss::ServiceBusy => "the host's services had no place for the task's request",
            MessageLoss::UpcallRefused => "the client that the task calls takes no calls now",
            MessageLoss::Undeliverable => "the mailbox was deleted",
        }
    }
}

/// Numbers of dropped messages, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses([u64; MessageLoss::ALL.len()]);

impl Losses {
    /// Messages dropped for a reason.
    #[must_use]
    pub fn of(&self, reason: MessageLoss) -> u64 {
        self.0[reason as usize]
    }

    /// The reasons that occurred, each with the number of messages.
    pub fn iter(&self) -> impl Iterator<Item = (MessageLoss, u64)> {
        MessageLoss::ALL.into_iter().zip(self.0).filter(|(_, messages)| *messages > 0)
    }

    pub(super) fn add(&mut self, reason: MessageLoss, messages: u64) {
        self.0[reason as usize] += messages;
    }

    pub(super) fn add_all(&mut self, other: &Losses) {
        self.0.iter_mut().zip(other.0).for_each(|(all, more)| *all += more);
    }
}
