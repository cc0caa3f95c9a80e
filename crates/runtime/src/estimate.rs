//! The estimate of a handler's cost, and of a query's: the one path on which admission learns what something new will
//! take. The cost at work is measured there.

use crossdock_control::load::{Cost, HANDING_NS_PER_BATCH};
use crossdock_engine::{Handler, measure};
use crossdock_format::Format;

/// The cost of what `make` makes, from short runs on a sample of its stream's records, with what it takes a context to
/// bring a batch. `None` if there is no record in the sample, or no memory.
pub(crate) fn estimate(
    make: &mut dyn FnMut() -> Box<dyn Handler>,
    format: &Format,
    sample: &[u8],
    records_per_batch: f64,
) -> Option<Cost> {
    #[cfg(test)]
    if crossdock_device::simulated::is_active() {
        return simulated(format, sample, records_per_batch);
    }
    let measured = measure(make, format, sample, (records_per_batch.round() as usize).max(1))?;
    Some(Cost {
        ns_per_batch: measured.ns_per_batch + HANDING_NS_PER_BATCH as f64,
        ns_per_message: measured.mean_ns,
        tail_ns_per_message: measured.tail_ns,
        messages_out_per_message: measured.out_records_per_record,
        bytes_out_per_message: measured.out_bytes_per_record,
        bytes_in_per_message: sample.len() as f64 / measured.records.max(1) as f64,
        messages_per_batch: records_per_batch.max(1.0),
        sample_messages: measured.records,
        is_provisional: false,
    })
}

/// The cost of anything in a simulation, where a run follows from its seed and from no clock: so little that no query is refused for it, at
/// the peak that walks over a state and a burst behind a fault make within a window (100,000 records a second and more).
#[cfg(test)]
fn simulated(format: &Format, sample: &[u8], records_per_batch: f64) -> Option<Cost> {
    let records = format.check_records(sample, |_, _| ()).ok().filter(|records| *records > 0)?;
    let bytes = sample.len() as f64 / records as f64;
    Some(Cost {
        ns_per_batch: 100.0,
        ns_per_message: 100.0,
        tail_ns_per_message: 200.0,
        messages_out_per_message: 1.0,
        bytes_out_per_message: bytes,
        bytes_in_per_message: bytes,
        messages_per_batch: records_per_batch.max(1.0),
        sample_messages: records as u64,
        is_provisional: false,
    })
}
