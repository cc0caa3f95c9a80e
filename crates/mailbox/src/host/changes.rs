//! Mailboxes that the context watches: it gets those of them that have changed, and need not look at the others.

use super::HostInterface;
use super::mailbox::MailboxKey;

impl HostInterface {
    /// Begins or ends to note the changes of a mailbox for [`HostInterface::next_changed`].
    pub fn watch(&mut self, mailbox: MailboxKey, is_watched: bool) {
        // It may have been deleted.
        if let Some(mailbox) = self.mailbox_mut(mailbox) {
            mailbox.is_watched = is_watched;
        }
        // A watcher is to see all that comes and goes, and to have its share.
        match is_watched {
            true => self.recall_direct(mailbox),
            false => self.try_direct(mailbox),
        }
    }

    /// The next watched mailbox that has changed since it was last returned here: a message was put into it, one has left it, or it
    /// was deleted.
    #[inline]
    pub fn next_changed(&mut self) -> Option<MailboxKey> {
        let changed = self.changed.pop()?;
        if let Some(mailbox) = self.mailbox_mut(changed) {
            mailbox.is_changed = false;
        }
        Some(changed)
    }

    /// Whether messages wait in a mailbox that nobody has got.
    #[must_use]
    pub fn has_message(&self, mailbox: MailboxKey) -> bool {
        self.mailbox(mailbox).is_some_and(|mailbox| !mailbox.queue.is_empty())
    }

    /// Notes a change of a mailbox, if it is watched.
    #[inline(always)]
    pub(super) fn note_change(&mut self, key: MailboxKey) {
        if let Some(mailbox) = self.mailbox_mut(key)
            && mailbox.is_watched
            && !mailbox.is_changed
        {
            mailbox.is_changed = true;
            self.changed.push(key);
        }
    }
}
