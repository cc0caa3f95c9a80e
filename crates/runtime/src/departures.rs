//! How many events there may be of clients that are gone without an end of what they published or subscribed to.

/// Events of clients that are gone, in `INTERVAL_NS` at most; the others are counted.
const MOST_EVENTS: u64 = 16;
const INTERVAL_NS: u64 = 10_000_000_000;

/// The events of clients that are gone, in the present interval.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    began_ns: u64,
    noted: u64,
    /// Clients for which there was no event.
    others: u64,
}

impl Departures {
    /// Begins another interval if it is time to. The number of clients without an event in the last one.
    pub(crate) fn tick(&mut self, now_ns: u64) -> u64 {
        if now_ns < self.began_ns + INTERVAL_NS {
            return 0;
        }
        let others = self.others;
        *self = Departures { began_ns: now_ns, noted: 0, others: 0 };
        others
    }

    /// Whether one more client is to have an event of its own.
    pub(crate) fn take(&mut self) -> bool {
        let is_noted = self.noted < MOST_EVENTS;
        if is_noted {
            self.noted += 1;
        } else {
            self.others += 1;
        }
        is_noted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_clients_that_go_at_once_have_few_events_and_a_number() {
        let mut departures = Departures::default();
        assert_eq!(departures.tick(INTERVAL_NS), 0);
        assert_eq!((0..100).filter(|_| departures.take()).count() as u64, MOST_EVENTS);
        assert_eq!(departures.tick(2 * INTERVAL_NS - 1), 0);
        assert_eq!(departures.tick(2 * INTERVAL_NS), 100 - MOST_EVENTS);
        assert!(departures.take());
        assert_eq!(departures.tick(3 * INTERVAL_NS), 0);
    }
}
