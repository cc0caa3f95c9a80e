//! The demo's live display: redrawn on a terminal, a line a second elsewhere.

use std::sync::atomic::Ordering;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget};

use super::jobs::Job;
use super::replay::{Counters, Stream};
use crate::out;
use crate::progress::style;
use crate::quantity::{count, rate};

/// The display while the replay runs.
pub(crate) struct Display<'a> {
    streams: &'a [Stream],
    bars: Option<Bars>,
    /// Whole seconds that have been reported, where there is no terminal.
    reported_s: u64,
}

/// The lines on a terminal.
struct Bars {
    all: MultiProgress,
    streams: Vec<ProgressBar>,
    jobs: Vec<ProgressBar>,
}

impl<'a> Display<'a> {
    /// A line for each stream, and one for each subscriber.
    pub(crate) fn new(streams: &'a [Stream], jobs: &[Job]) -> Display<'a> {
        let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let bars = (!all.is_hidden()).then(|| {
            let stream = |stream: &Stream| {
                let bar = all.add(ProgressBar::new(stream.replay.records));
                bar.set_style(style("{prefix:>20} {bar:24} {msg}"));
                bar.with_prefix(format!("stream {}", stream.name))
            };
            let job = |job: &Job| {
                let bar = all.add(ProgressBar::new_spinner());
                bar.set_style(style("{prefix:>20} {msg}"));
                bar.with_prefix(job.name)
            };
            let (streams, jobs) = (streams.iter().map(stream).collect(), jobs.iter().map(job).collect());
            Bars { all: all.clone(), streams, jobs }
        });
        Display { streams, bars, reported_s: 0 }
    }

    /// Shows how far things are, after so much time.
    pub(crate) fn update(&mut self, counters: &Counters, time: Duration) {
        let published: Vec<u64> = counters.published.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        let received: Vec<u64> = counters.received.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        if let Some(bars) = &self.bars {
            for (bar, records) in bars.streams.iter().zip(published) {
                bar.set_position(records);
                bar.set_message(format!("{} in, {}", count(records), rate(records, time)));
            }
            for (bar, records) in bars.jobs.iter().zip(received) {
                bar.set_message(format!("{} out, {}", count(records), rate(records, time)));
            }
        } else if time.as_secs() > self.reported_s {
            self.reported_s = time.as_secs();
            out::say(self.line(&published, &received, time));
        }
    }

    fn line(&self, published: &[u64], received: &[u64], time: Duration) -> String {
        let stream = |(stream, records): (&Stream, &u64)| {
            format!("{} {}/{} ({})", stream.name, count(*records), count(stream.replay.records), rate(*records, time))
        };
        let streams: Vec<String> = self.streams.iter().zip(published).map(stream).collect();
        let received: Vec<String> = received.iter().copied().map(count).collect();
        format!("{} s: in {}; out {}", time.as_secs(), streams.join(", "), received.join(" + "))
    }

    /// Takes the lines away.
    pub(crate) fn clear(&self) {
        if let Some(bars) = &self.bars {
            // A bar that cannot be cleared stays, which harms nothing.
            let _ = bars.all.clear();
        }
    }
}
