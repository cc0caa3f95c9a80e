//! Contexts that do not answer: how they are reported, and which changes are refused meanwhile.

use super::change::Step;
use crate::graph::ContextIndex;
use crate::managers::Managers;
use crate::managers::events::About;
use crate::managers::request::ControlRequest;
use crate::managers::watch::Lost;
use crate::platform::overlay::{Changed, Finished};
use std::collections::BTreeSet;
use std::time::Duration;

/// How long nodes that end with a change may work on what has come for them.
const FORCE_AFTER: Duration = Duration::from_millis(500);

impl Managers {
    /// That a change is finished when a context answers.
    pub(super) fn unfinished(&self, at: ContextIndex) -> String {
        let name = self.watch.name(at);
        format!(
            "context {name} does not answer: the change that waits for it is completed when it answers, and until \
             then no other change that involves it is made (if it never answers, restart the daemon: the change \
             state is kept)"
        )
    }

    /// Reports that a context does not answer, while a change waits for it; in words.
    pub(super) fn note_unanswered(&mut self, at: ContextIndex) -> String {
        let why = self.lost_text(at).unwrap_or_else(|| self.unfinished(at));
        let name = self.watch.name(at).to_owned();
        self.events.note("unanswered", About { handler: None, context: Some(&name) }, why.clone());
        why
    }

    /// Goes on with changes that wait for contexts.
    pub(super) fn resume(&mut self) {
        self.overlay.force_after(FORCE_AFTER);
        for Finished { change, changed: Changed { lost_states, dropped, .. } } in self.overlay.resume() {
            self.unconfirmed
                .iter_mut()
                .filter(|caller| caller.change == Some(change))
                .for_each(|caller| caller.change = None);
            let following = self.following.remove(&change).unwrap_or_default();
            if following.is_reported || lost_states > 0 || dropped > 0 {
                let text = format!(
                    "the change that waited for contexts is complete; {lost_states} states were lost, and {dropped} \
                     records that waited for removed handlers were dropped"
                );
                self.events.note("answered", About::default(), text);
            }
            self.follow(following);
        }
    }

    /// Why a context does not answer, in words, if it does not.
    pub(super) fn lost_text(&self, at: ContextIndex) -> Option<String> {
        let why = match self.watch.lost(at)? {
            Lost::Ended => "its thread has ended, which is a mistake of Crossdock's: restart the daemon".to_owned(),
            Lost::Stuck(node) => {
                let handler = self.handlers.iter().find(|(_, there)| Some(there.node) == node).map(|(name, _)| name);
                let from = handler.map_or_else(|| "a step".to_owned(), |name| format!("handler `{name}`"));
                format!("its thread has not returned from {from}")
            }
        };
        Some(format!("context {} does not answer: {why}", self.watch.name(at)))
    }

    /// Whether any context does not answer.
    fn is_anything_lost(&self) -> bool {
        (0..self.watch.seats.len()).any(|at| self.watch.lost(ContextIndex(at as u8)).is_some())
    }

    /// Why some steps cannot be carried out now, if they need a context that does not answer.
    pub(super) fn lost_for(&self, steps: &[Step]) -> Option<String> {
        if !self.is_anything_lost() {
            return None;
        }
        let touched: BTreeSet<ContextIndex> = steps.iter().flat_map(|step| self.touched(step)).collect();
        let why = touched.into_iter().find_map(|at| self.lost_text(at))?;
        Some(format!("{why}; no change that involves it is made until it answers"))
    }

    /// The context for which some steps have to wait, since a change that it has not completed takes part in them.
    pub(super) fn hindered_by(&self, steps: &[Step]) -> Option<ContextIndex> {
        let touched = steps.iter().flat_map(|step| self.touched(step)).collect();
        let node = |step: &Step| self.handlers.get(step.about().0).map(|there| there.node);
        self.overlay.busy(&touched, &steps.iter().filter_map(node).collect::<Vec<_>>())
    }

    /// The contexts that a step needs: those of its handler, and of its neighbours.
    fn touched(&self, step: &Step) -> Vec<ContextIndex> {
        let (name, reads, to) = step.about();
        let near = self.neighbours(name, reads).into_iter().filter_map(|name| self.handlers.get(name));
        near.filter_map(|handler| self.overlay.placed(handler.node)).map(|placed| placed.at).chain(to).collect()
    }

    /// Reports the contexts that were lost or came back since the last call.
    pub(super) fn note_turned(&mut self) {
        let turned = std::mem::take(&mut self.watch.turned);
        // While one is lost there is nothing new for it to take.
        let retries = !turned.is_empty() || !self.is_anything_lost();
        for at in turned {
            let name = self.watch.name(at).to_owned();
            let lost = self.lost_text(at);
            let (kind, text) = match lost {
                Some(why) => ("lost", why),
                None => ("returned", format!("context {name} answers again")),
            };
            self.events.note(kind, About { handler: None, context: Some(&name) }, text);
        }
        if retries {
            for stream in std::mem::take(&mut self.formats_to_retry) {
                self.answer(ControlRequest::NewFormat { stream, reader: None });
            }
        }
    }
}
