//! Small remote calls (Nectar paper, 3.2): to the core, with a sync for the result; and from it, upcalls that a thread of this
//! process serves.

use super::error::MailboxError;
use super::inner::Inner;
use super::signal::{MAX_UPCALLS, listen};
use super::sync::SyncWord;
use super::wait::Wait;
use crate::failpoint::failpoint;
use crate::shared::{Descriptor, Signal, up};
use std::sync::{Arc, Weak};

/// Calls `procedure` of the core and waits for its result.
pub(crate) fn call(inner: &Arc<Inner>, procedure: u16, argument: u64, wait: Wait) -> Result<u64, MailboxError> {
    let mut result = SyncWord::alloc(inner)?;
    failpoint!("call.before_push");
    let head = Descriptor { op: up::CALL, target: procedure, ..Descriptor::default() };
    inner.pass(Signal { head, a: result.address().to_word(), b: argument })?;
    failpoint!("call.after_push");
    let value = result.read(wait)?;
    failpoint!("call.answered");
    Ok(value)
}

/// Starts the thread that serves upcalls with `serve`, and notifies the core that it may make some.
pub(crate) fn serve(
    inner: &Arc<Inner>,
    serve: impl FnMut(u16, u64) -> u64 + Send + 'static,
) -> Result<(), MailboxError> {
    let served = inner.with_signals(|signals| std::mem::replace(&mut signals.serves, true));
    if served {
        return Err(MailboxError::UpcallsServed);
    }
    let attachment = Arc::downgrade(inner);
    let watch = inner.watch.clone();
    let thread = std::thread::Builder::new().name("crossdock-upcall".to_owned());
    let spawned = thread.spawn(move || {
        let mut serve = serve;
        while let Some(upcall) = next(&attachment, &watch) {
            failpoint!("upcall.before_serving");
            let value = serve(upcall.head.target, upcall.a);
            let Some(inner) = attachment.upgrade() else { return };
            if answer(&inner, &upcall, value).is_err() {
                return;
            }
        }
    });
    if let Err(error) = spawned {
        inner.with_signals(|signals| signals.serves = false);
        return Err(MailboxError::System { what: format!("starting the thread for upcalls: {error}").into() });
    }
    for _ in 0..MAX_UPCALLS {
        inner.with_signals(|signals| signals.push_or_owe(inner, listen(up::LISTEN_UPCALLS)))?;
    }
    Ok(())
}

/// The next upcall; none once the attachment is over. Does not keep the attachment while it waits.
fn next(attachment: &Weak<Inner>, watch: &super::watcher::Watch) -> Option<Signal> {
    let condition = watch.condition(crate::shared::UPCALL_CONDITION.into())?;
    let look = || {
        let inner = attachment.upgrade().ok_or_else(|| watch.gone())?;
        inner.with_signals(|signals| {
            signals.drain(&inner, None)?;
            Ok(signals.upcalls.pop_front())
        })
    };
    watch.wait_for(condition, Wait::Block, None, look).ok()
}

/// Sends an upcall's result, and a credit for the next one.
fn answer(inner: &Inner, upcall: &Signal, value: u64) -> Result<(), MailboxError> {
    failpoint!("upcall.before_answer");
    let head = Descriptor { op: up::SYNC_WRITE, ..Descriptor::default() };
    inner.with_signals(|signals| {
        // Not to wait with the lock in hand: all other calls of this process would wait too.
        signals.push_or_owe(inner, Signal { head, a: upcall.b, b: value })?;
        signals.push_or_owe(inner, listen(up::LISTEN_UPCALLS))
    })?;
    failpoint!("upcall.after_answer");
    Ok(())
}
