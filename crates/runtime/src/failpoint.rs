//! Places where a daemon can be made to die between two steps of a checkpoint, for tests of what the next daemon begins with. Compiled in
//! with feature `failpoints` only; else they are nothing at all.

/// Every one there is, in the order of the steps.
#[cfg(any(test, feature = "failpoints"))]
pub const FAILPOINTS: &[&str] = &[
    "checkpoint.begun",
    "checkpoint.created",
    "checkpoint.written",
    "checkpoint.synced",
    "checkpoint.renamed",
    "checkpoint.done",
    "cut.held",
    "cut.dry",
    "cut.copied",
    "cut.released",
    "cut.file_written",
    "cut.state_written",
    "cut.states_synced",
    "cut.manifest_synced",
    "cut.manifest_renamed",
    "cut.done",
    "cut.tidied",
    "cut.noted",
    "cut.reported",
];

/// A place where the daemon can be made to die: `failpoint!("cut.held")`. `CROSSDOCK_FAILPOINT` says at which, as for `crossdock-mailbox`.
macro_rules! failpoint {
    ($name:literal) => {
        #[cfg(test)]
        $crate::failpoint::simulated::pass($crate::failpoint::simulated::Moment::Failpoint);
        #[cfg(feature = "failpoints")]
        crossdock_mailbox::failpoint::pass($name);
    };
}
pub(crate) use failpoint;

/// The death of a daemon that is simulated on this thread: a panic with [`Crashed`], which nobody reports.
#[cfg(test)]
pub(crate) mod simulated {
    use std::cell::Cell;

    thread_local! {
        static LEFT: Cell<Option<(Moment, u32)>> = const { Cell::new(None) };
    }

    /// A kind of moments at which it can die.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Moment {
        /// A place that the code names.
        Failpoint,
        /// Between two turns of the daemon's parts, also while one of them waits for the others.
        Turn,
    }

    /// The payload of the panic.
    #[derive(Debug)]
    pub(crate) struct Crashed;

    /// The daemon dies at a later moment of this kind, after this number of others; or not at all.
    pub(crate) fn crash_at(moment: Option<(Moment, u32)>) {
        LEFT.set(moment);
    }

    /// A moment has come.
    pub(crate) fn pass(moment: Moment) {
        match LEFT.get() {
            Some((at, 0)) if at == moment => {
                LEFT.set(None);
                std::panic::resume_unwind(Box::new(Crashed));
            }
            Some((at, left)) if at == moment => LEFT.set(Some((at, left - 1))),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FAILPOINTS;
    use std::collections::BTreeSet;

    /// A name that stands in the list and nowhere else would never be passed.
    #[test]
    fn the_list_names_every_place_and_no_other() {
        let mut found = BTreeSet::new();
        for file in ["checkpoints.rs", "cuts.rs", "managers/cuts.rs"] {
            let path = format!("{}/src/{file}", env!("CARGO_MANIFEST_DIR"));
            let Ok(text) = std::fs::read_to_string(path) else { continue };
            found.extend(
                text.split("failpoint!(\"").skip(1).filter_map(|rest| rest.split('"').next().map(str::to_owned)),
            );
        }
        let listed: BTreeSet<String> = FAILPOINTS.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(listed.len(), FAILPOINTS.len(), "a name stands twice in the list");
        assert_eq!(found, listed);
    }
}
