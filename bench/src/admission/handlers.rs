//! Handlers of many shapes, from a seed.

use crossdock_runtime::HandlerSpec;

/// A small generator of numbers, so that a round can be repeated.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound` (xorshift64*).
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % bound.max(1)
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len() as u64) as usize]
    }
}

const SELECT: [&str; 5] = [
    "*",
    "carrier, flight, origin, dest",
    "year, month, day, dep_time, dep_delay, arr_time, arr_delay, carrier, flight, tailnum, origin, dest, air_time",
    "flight, distance * 2 AS twice, CAST(dep_time AS BIGINT) AS left_at",
    "carrier, CASE WHEN dep_delay > 60 THEN 'late' WHEN dep_delay > 0 THEN 'soon' ELSE 'fine' END AS how",
];
const FIELDS: [&str; 6] = ["distance", "hour", "minute", "flight", "dep_time", "sched_dep_time"];
const TEXTS: [&str; 4] =
    ["tailnum LIKE 'N%2%'", "dest IN ('LAX', 'SFO', 'ATL', 'MIA')", "origin = 'JFK'", "carrier <> 'UA'"];

/// The next handler, which reads stream `s`.
pub(super) fn next(dice: &mut Dice, name: &str) -> HandlerSpec {
    let mut spec = HandlerSpec { name: name.to_owned(), place: Some("c-core-0".to_owned()), ..HandlerSpec::default() };
    if dice.below(3) > 0 {
        let mut conditions = Vec::new();
        for _ in 0..1 + dice.below(3) {
            conditions.push(match dice.below(3) {
                0 => dice.one(&TEXTS).to_owned(),
                1 => format!("{} > {}", dice.one(&FIELDS), dice.below(40)),
                _ => format!("{} + {} < {}", dice.one(&FIELDS), dice.one(&FIELDS), 100 + dice.below(4000)),
            });
        }
        let joined = conditions.join(dice.one(&[" AND ", " OR "]));
        spec.sql = Some(format!("SELECT {} FROM s WHERE {joined}", dice.one(&SELECT)));
        return spec;
    }
    let (native, parameters) = match dice.below(4) {
        0 => ("work", vec![("ns", (50 + dice.below(1500)).to_string())]),
        1 => ("work", vec![("ns", (500 + dice.below(4000)).to_string()), ("every", (2 + dice.below(6)).to_string())]),
        2 => ("tally", vec![("key", dice.one(&["carrier", "origin,dest", "tailnum"]).to_owned())]),
        _ => ("changes", vec![("fields", dice.one(&["distance", "dest"]).to_owned()), ("key", "carrier".to_owned())]),
    };
    spec.native = Some(native.to_owned());
    spec.input_streams = vec!["s".to_owned()];
    spec.parameters = parameters.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    spec
}
