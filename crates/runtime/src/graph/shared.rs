//! The state of a node's instances: each has its own, or all share one, which is then with the one that ran last.

use crate::graph::node::{Instance, Node};
use crossdock_engine::Handler;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl Instance {
    /// Whether its handler shares its state with those of the node's other instances.
    pub(super) fn shares_state(&self) -> bool {
        self.handler.as_ref().is_some_and(|handler| handler.shares_state())
    }
}

impl Node {
    /// Reports how many bytes its handlers' states take: they have changed hands, or one has gone.
    pub(super) fn note_state(&self) {
        let handlers = self.instances.iter().filter_map(|instance| instance.handler.as_deref());
        let bytes: usize = handlers.map(Handler::state_bytes).sum();
        self.gauges.state_bytes.set(bytes as u64);
    }

    /// The place of the instance that has the state which they share, if they share one. The only one has it. Before any has run it is the
    /// first that shares it: that of a checkpoint was given to this one.
    pub(super) fn state_holder(&self) -> Option<usize> {
        match self.instances.len() {
            1 => Some(0),
            _ => self.holder.or_else(|| self.instances.iter().position(Instance::shares_state)),
        }
    }

    /// Where its instances share their state, and none has run yet, one of them has it from now on.
    pub(super) fn choose_holder(&mut self) {
        if self.holder.is_none() {
            self.holder = self.instances.iter().position(Instance::shares_state);
        }
    }

    /// Takes out the handler for records of a format that come by a stream, with the state: its instance's place, and the format of the
    /// records that it makes. If it does not take the state, the node has failed, and the one before keeps that.
    #[inline]
    pub(super) fn take_handler(&mut self, stream: u32, format: u64) -> Option<(Box<dyn Handler>, usize, u64)> {
        let at = self.place_for(stream, format)?;
        let output = self.instances.get(at)?.output;
        self.take_instance(at).map(|handler| (handler, at, output))
    }

    /// Takes out the handler of an instance, with the state.
    #[inline]
    pub(super) fn take_instance(&mut self, at: usize) -> Option<Box<dyn Handler>> {
        let needs_state = self.instances.len() > 1 && self.holder != Some(at) && self.instances.get(at)?.shares_state();
        if needs_state {
            // Before the handler is taken out: it may be the one.
            self.choose_holder();
        }
        let mut handler = self.instances.get_mut(at)?.handler.take()?;
        if needs_state && self.holder != Some(at) && !self.bring_state(at, &mut *handler) {
            self.fail();
            return None;
        }
        Some(handler)
    }

    /// Gives the state that all instances share to the handler of one of them; whether it has taken it.
    fn bring_state(&mut self, at: usize, handler: &mut dyn Handler) -> bool {
        let before = self.holder.and_then(|before| self.instances.get_mut(before)?.handler.as_deref_mut());
        let is_taken = before.is_none_or(|before| move_state(before, handler));
        if is_taken {
            self.holder = Some(at);
        }
        is_taken
    }

    /// The format of the instance that has the state which all share, if they share one.
    fn holder_format(&self) -> Option<u64> {
        self.state_holder().and_then(|at| self.instances.get(at)).filter(|of| of.shares_state()).map(|of| of.format)
    }

    /// Lets instances go, none that has the shared state.
    pub(super) fn retain_instances(&mut self, is_kept: impl Fn(&Instance) -> bool) {
        let holder = self.holder_format();
        self.instances.retain(|instance| is_kept(instance) || Some(instance.format) == holder);
        self.holder = holder.and_then(|format| self.instances.iter().position(|instance| instance.format == format));
    }

    /// One more instance, or another one in the place of that for the same records, which comes back. If that one had the state, it goes
    /// to the new one, or to another where the new one shares none.
    pub(super) fn put_instance(&mut self, new: Instance) -> Option<Instance> {
        let holder = self.state_holder();
        let Some(at) = self.instances.iter().position(|known| known.is_like(&new)) else {
            self.holder = holder.filter(|at| self.instances.get(*at).is_some_and(Instance::shares_state));
            self.instances.push(new);
            return None;
        };
        let mut before = std::mem::replace(self.instances.get_mut(at)?, new);
        if holder == Some(at)
            && let Some(from) = before.handler.as_deref_mut().filter(|handler| handler.shares_state())
        {
            let is_new = self.instances.get(at).is_some_and(Instance::shares_state);
            self.holder = if is_new { Some(at) } else { self.instances.iter().position(Instance::shares_state) };
            let to = self.holder.and_then(|to| self.instances.get_mut(to)?.handler.as_deref_mut());
            if !to.is_none_or(|to| move_state(from, to)) {
                self.note_fault();
            }
        }
        self.note_state();
        Some(before)
    }

    /// Its instances, which are new, take over the state of those before; the shared one was with the one at `holder`. Returns the
    /// number of states that were lost.
    pub(super) fn take_states(&mut self, before: &mut [Instance], holder: Option<usize>) -> u32 {
        let mut lost = 0;
        for (at, before) in before.iter_mut().enumerate() {
            let shares = before.shares_state();
            let to = match shares {
                true if holder != Some(at) => continue,
                true => self.place_for_state(before),
                false => self.instances.iter().position(|after| after.is_like(before)),
            };
            let after = to.and_then(|to| self.instances.get_mut(to)?.handler.as_deref_mut());
            let is_moved = match (before.handler.as_deref_mut(), after) {
                (Some(before), Some(after)) => move_state(before, after),
                // Without a handler before or now, the next version begins anew.
                (_, None) => !shares,
                (None, _) => true,
            };
            lost += u32::from(!is_moved);
            if shares && is_moved {
                self.holder = to;
            }
        }
        lost
    }

    /// The instance that takes the shared state of one before: that for the same records, or any that shares its state.
    fn place_for_state(&self, before: &Instance) -> Option<usize> {
        let same = self.instances.iter().position(|after| after.is_like(before) && after.shares_state());
        same.or_else(|| self.instances.iter().position(Instance::shares_state))
    }
}

/// Moves the state from one handler to another, if it has one; whether that one has taken it. If not, the first has it still. A panic of a
/// user's handler must not end the context.
fn move_state(from: &mut dyn Handler, to: &mut dyn Handler) -> bool {
    let hand_over = || {
        // It has none.
        let Some(state) = from.hand_over() else { return true };
        match to.take_over(state) {
            Ok(()) => true,
            Err(state) => {
                // The state that it had a moment ago fits it.
                let is_back = from.take_over(state).is_ok();
                debug_assert!(is_back, "a handler takes its own state");
                false
            }
        }
    };
    catch_unwind(AssertUnwindSafe(hand_over)).unwrap_or(false)
}
