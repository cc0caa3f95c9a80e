//! Figures: medians over rounds, and how they are printed.

use serde_json::json;
use std::collections::BTreeMap;

/// Metrics that are to be 0 in each round.
const SUMMED: [&str; 5] = ["lost", "duplicated", "reordered", "state_lost", "admitted_lost"];

/// Values of one figure over the rounds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Samples(pub(crate) Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle value; of an even number, the mean of the middle two.
    pub(crate) fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match sorted.len() {
            0 => None,
            n if n % 2 == 1 => Some(sorted[middle]),
            _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
        }
    }

    /// The reported value of a figure: the median, or the sum of what is lost or doubled, so that one in any round is seen.
    fn summary(&self, metric: &str) -> Option<f64> {
        match SUMMED.contains(&metric) && !self.0.is_empty() {
            true => Some(self.0.iter().sum()),
            false => self.median(),
        }
    }

    /// Least and greatest.
    pub(crate) fn range(&self) -> (f64, f64) {
        self.0.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), &v| (lo.min(v), hi.max(v)))
    }
}

/// The `p`-th part (0 to 1) of the values, by rank.
pub(crate) fn quantile(values: &mut [u64], p: f64) -> u64 {
    values.sort_unstable();
    let rank = ((values.len() as f64 - 1.0) * p).round();
    values.get(rank as usize).copied().unwrap_or(0)
}

/// One figure of a benchmark.
pub(crate) struct Figure {
    pub(crate) bench: &'static str,
    pub(crate) case: String,
    pub(crate) metric: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) samples: Samples,
    pub(crate) baseline: Option<(&'static str, Samples)>,
    /// The ratios of the rounds, where the middle one of those is the figure's; else it is that of the medians.
    pub(crate) ratios: Option<Samples>,
}

/// A figure that a benchmark declares: its case, its metric, the unit, and the baseline's name where there is one.
pub(crate) type Declared = (&'static str, &'static str, &'static str, Option<&'static str>);

/// The values of the rounds by case and metric: ours, and the baseline's.
#[derive(Default)]
pub(crate) struct Table(BTreeMap<(&'static str, &'static str), (Samples, Samples)>);

impl Table {
    /// Adds the value of one round, and the baseline's.
    pub(crate) fn push(&mut self, case: &'static str, metric: &'static str, value: f64, baseline: Option<f64>) {
        let (ours, base) = self.0.entry((case, metric)).or_default();
        ours.push(value);
        base.0.extend(baseline);
    }

    /// The figures that have values, in the order of their declaration.
    pub(crate) fn figures(mut self, bench: &'static str, declared: &[Declared]) -> Vec<Figure> {
        let figure = |&(case, metric, unit, baseline): &Declared| {
            let (samples, base) = self.0.remove(&(case, metric))?;
            let baseline = baseline.map(|name| (name, base));
            Some(Figure { bench, case: case.to_owned(), metric, unit, samples, baseline, ratios: None })
        };
        declared.iter().filter_map(figure).collect()
    }
}

/// Prints figures: one JSON object a line, or a table. `cores` says how the cores of a run are related, where it used
/// certain ones.
#[expect(clippy::print_stdout, reason = "figures are what this program prints")]
pub(crate) fn print(figures: &[Figure], as_json: bool, machine: &str, cores: Option<&str>) {
    if !as_json {
        println!("{machine}; medians (least..greatest) over the rounds; of what is lost or doubled, the sum");
        if let Some(cores) = cores {
            println!("{cores}");
        }
    }
    for figure in figures {
        let Some(value) = figure.samples.summary(figure.metric) else { continue };
        let baseline = figure.baseline.as_ref().and_then(|(name, samples)| samples.median().map(|v| (*name, v)));
        let ratio = baseline.map(|(_, base)| figure.ratios.as_ref().and_then(Samples::median).unwrap_or(value / base));
        if as_json {
            let mut line = json!({
                "bench": figure.bench, "case": figure.case, "metric": figure.metric, "value": value,
                "unit": figure.unit, "baseline": baseline.map(|(name, _)| name),
                "baseline_value": baseline.map(|(_, v)| v), "ratio": ratio,
                "rounds": figure.samples.0.len(), "machine": machine,
            });
            if let Some(cores) = cores {
                line["cores"] = cores.into();
            }
            println!("{line}");
        } else {
            let (least, greatest) = figure.samples.range();
            let against = match (baseline, ratio) {
                (Some((name, v)), Some(r)) => format!("  {name} {v:.4}, ratio {r:.3}"),
                _ => String::new(),
            };
            let Figure { case, metric, unit, .. } = figure;
            println!("{case:<24} {metric:<22} {value:>14.2} {unit:<4} ({least:.2}..{greatest:.2}){against}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians() {
        assert_eq!(Samples(vec![]).median(), None);
        assert_eq!(Samples(vec![3.0, 1.0, 2.0]).median(), Some(2.0));
        assert_eq!(Samples(vec![4.0, 1.0, 2.0, 3.0]).median(), Some(2.5));
        assert_eq!(Samples(vec![0.0, 0.0, 1.0]).summary("lost"), Some(1.0));
        assert_eq!(Samples(vec![0.0, 0.0, 1.0]).summary("swaps"), Some(0.0));
        assert_eq!(Samples(vec![]).summary("lost"), None);
        assert_eq!(Samples(vec![4.0, 1.0]).range(), (1.0, 4.0));
    }

    #[test]
    fn figures_come_as_declared_with_their_baselines() {
        const DECLARED: [Declared; 3] =
            [("b", "latency", "us", Some("plain")), ("a", "rate", "1/s", None), ("a", "never_measured", "", None)];
        let mut table = Table::default();
        table.push("a", "rate", 7.0, None);
        table.push("b", "latency", 2.0, Some(4.0));
        table.push("b", "latency", 3.0, Some(5.0));
        let figures = table.figures("test", &DECLARED);
        let names: Vec<_> = figures.iter().map(|figure| (&*figure.case, figure.metric, figure.unit)).collect();
        assert_eq!(names, [("b", "latency", "us"), ("a", "rate", "1/s")]);
        assert_eq!(figures[0].samples.0, [2.0, 3.0]);
        let (name, samples) = figures[0].baseline.as_ref().unwrap();
        assert_eq!((*name, &samples.0[..]), ("plain", &[4.0, 5.0][..]));
        assert!(figures[1].baseline.is_none());
    }
}
