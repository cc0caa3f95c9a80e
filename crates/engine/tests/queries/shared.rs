//! Random queries that read one part twice: the groups of windows, united or joined with themselves, or with their own greatest counts.

use fastrand::Rng;

use crate::case::Rule;
use crate::events::{Events, SECOND};
use crate::lists::Lists;
use crate::spec::Texts;
use crate::windows::WindowSpec;

/// Conditions on the part, written alike in both dialects.
const FILTERS: &[&str] = &["", " WHERE a0 > 1", " WHERE c0 IS NOT NULL", " WHERE a0 % 2 = 0"];

/// How the part is read twice.
#[derive(Clone, Copy, Debug)]
enum How {
    /// Both behind conditions of their own.
    Union([&'static str; 2]),
    /// Each group with those of its window, also by key, or with those of a window as many steps before.
    Join { kind: &'static str, by_key: bool, steps: i64 },
    /// The groups with the greatest count of each window.
    Most,
}

/// A query of this kind.
#[derive(Clone, Debug)]
pub(crate) struct SharedSpec {
    part: WindowSpec,
    how: How,
}

impl SharedSpec {
    pub(crate) fn new(events: &Events, lists: &mut Lists, random: &mut Rng) -> SharedSpec {
        let part = WindowSpec::part(events, lists, random);
        let filter = |random: &mut Rng| FILTERS[random.usize(0..FILTERS.len())];
        let how = match random.u8(0..3) {
            0 => How::Union([filter(random), filter(random)]),
            1 => How::Join {
                kind: ["", "LEFT ", "FULL "][random.usize(0..3)],
                by_key: random.u8(0..4) > 0,
                // The lengths of some windows are near that of all times.
                steps: if part.step_s() < 100 { random.i64(0..3) } else { 0 },
            },
            _ => How::Most,
        };
        SharedSpec { part, how }
    }

    pub(crate) fn texts(&self) -> Texts {
        let (ours, theirs, columns) = self.part.with();
        let step = self.part.step_s();
        let (our_rest, their_rest, columns) = match self.how {
            How::Union([one, other]) => {
                let rest = format!("SELECT * FROM p{one} UNION ALL SELECT * FROM p{other}");
                (rest.clone(), rest, columns)
            }
            How::Join { kind, by_key, steps } => {
                let last = columns - 4;
                let key = if by_key { " AND p.c0 = z.c0" } else { "" };
                let rest = |ago: String| {
                    format!(
                        "SELECT p.c0, p.ws, p.a{last}, z.c0 AS d0, z.ws AS zs, z.a{last} AS b0 \
                         FROM p {kind}JOIN p z ON z.ws = p.ws{ago}{key}"
                    )
                };
                let ours = format!(" - INTERVAL '{} seconds'", steps * step);
                (rest(ours), rest(format!(" - {}", steps * step * SECOND)), 6)
            }
            How::Most => {
                let rest = "SELECT p.c0, p.ws, p.we, p.a0 FROM p JOIN m ON p.a0 = m.most AND p.ws = m.ws";
                let tumble = format!("TUMBLE(ws, INTERVAL '{step} seconds')");
                let start = format!("floor_to(ws, {})", step * SECOND);
                (
                    format!(", m AS (SELECT window_start AS ws, max(a0) AS most FROM p GROUP BY {tumble}) {rest}"),
                    format!(", m AS (SELECT {start} AS ws, max(a0) AS most FROM p GROUP BY {start}) {rest}"),
                    4,
                )
            }
        };
        let join = |with: String, rest: String| {
            if rest.starts_with(',') { with + &rest } else { format!("{with} {rest}") }
        };
        let rules = vec![Rule::Exact; columns];
        Texts { ours: join(ours, our_rest), theirs: join(theirs, their_rest), rules, last_of: 0 }
    }

    pub(crate) fn smaller(&self) -> Vec<SharedSpec> {
        let parts = self.part.smaller().into_iter().filter(WindowSpec::is_part);
        let mut found: Vec<SharedSpec> = parts.map(|part| SharedSpec { part, how: self.how }).collect();
        let mut add = |how| found.push(SharedSpec { part: self.part.clone(), how });
        match self.how {
            How::Union([one, other]) => {
                let plain = FILTERS[0];
                if !one.is_empty() {
                    add(How::Union([plain, other]));
                }
                if !other.is_empty() {
                    add(How::Union([one, plain]));
                }
            }
            How::Join { kind, by_key, steps } => {
                if !kind.is_empty() {
                    add(How::Join { kind: "", by_key, steps });
                }
                if steps > 0 {
                    add(How::Join { kind, by_key, steps: 0 });
                }
            }
            How::Most => {}
        }
        found
    }
}
