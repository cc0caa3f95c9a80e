//! The reports of the records that contexts shed by themselves.

/// Seconds without shedding after which a context keeps up with a handler's records again.
const CALM_S: u32 = 10;

/// The records of a handler that a context sheds by itself while it is behind. Shedding may begin and end a hundred
/// times within seconds, so it is reported as one event.
#[derive(Debug, Default)]
pub(crate) struct SamplingEvents {
    /// Batches that were sampled, and records left out, at the last reading.
    batches: u64,
    left_out: u64,
    /// Records left out before it began; none while the context keeps up.
    before: Option<u64>,
    calm_s: u32,
}

impl SamplingEvents {
    /// Takes in the counters at the end of a second. Returns the event to report, if any: its kind and its text.
    pub(crate) fn second(&mut self, batches: u64, left_out: u64) -> Option<(&'static str, String)> {
        let is_sampling = batches != std::mem::replace(&mut self.batches, batches);
        let left_before = std::mem::replace(&mut self.left_out, left_out);
        self.calm_s = if is_sampling { 0 } else { self.calm_s.saturating_add(1) };
        match self.before {
            None if is_sampling => {
                self.before = Some(left_before);
                let text = "the context is overloaded; this handler is sampled";
                Some(("degraded", text.to_owned()))
            }
            Some(before) if self.calm_s >= CALM_S => {
                self.before = None;
                let records = left_out.saturating_sub(before);
                let text = format!(
                    "the context has not been overloaded for {CALM_S} s: sampling ends; it left out {records} records"
                );
                Some(("restored", text))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn sampling_is_reported_once_when_it_begins_and_once_after_it_has_ended() {
        let mut sampling_events = SamplingEvents::default();
        assert_eq!(sampling_events.second(0, 40), None, "sampled as agreed");
        assert_eq!(sampling_events.second(3, 100).map(|event| event.0), Some("degraded"));
        for second in 0..100 {
            assert_eq!(sampling_events.second(3 + second / 5, 100 + second), None);
        }
        for _ in 0..CALM_S - 5 {
            assert_eq!(sampling_events.second(22, 500), None);
        }
        let (kind, text) = sampling_events.second(22, 500).unwrap();
        assert_eq!(kind, "restored");
        assert!(text.contains(" 460 records"), "{text}");
        assert_eq!(sampling_events.second(22, 900), None);
        assert_eq!(sampling_events.second(23, 901).map(|event| event.0), Some("degraded"), "another one");
    }
}
