//! The reports of a handler's costs that no clock decides.
#![allow(clippy::unwrap_used)] // a test that fails may panic

use crossdock_engine::{Handler, HandlerProgram, Measured, Natives, measure};
use crossdock_format::{Format, RecordBuilder};

fn format() -> Format {
    Format::parse_schema("n i32\ns string").unwrap()
}

fn sample(records: usize) -> Vec<u8> {
    let mut builder = RecordBuilder::new(&format());
    let record = |n: usize| {
        builder.set_i64(0, n as i64).unwrap();
        builder.set_text(1, "x".repeat(n % 7)).unwrap();
        builder.finish().unwrap().to_vec()
    };
    (0..records).flat_map(record).collect()
}

fn maker(program: &HandlerProgram) -> impl FnMut() -> Box<dyn Handler> {
    move || program.make(&Natives::built_in(), &format()).unwrap().handler
}

fn measured(program: &HandlerProgram, records: usize, in_batch: usize) -> Measured {
    let found = measure(&mut maker(program), &format(), &sample(records), in_batch).unwrap();
    assert_eq!(found.records, records as u64);
    assert!(found.batches > 0);
    for ns in [found.ns_per_batch, found.mean_ns, found.tail_ns, found.ns_of_batch(10.0)] {
        assert!(ns.is_finite() && ns >= 0.0, "{found:?}");
    }
    assert!(found.tail_ns >= found.mean_ns, "{found:?}");
    found
}

#[test]
fn output_is_counted() {
    let native = HandlerProgram::native;
    for records in [1, 3, 100, 5000] {
        for in_batch in [1, 2, 50, 1_000_000] {
            let found = measured(&native("pass"), records, in_batch);
            assert_eq!(found.out_records_per_record, 1.0);
            let nothing = measured(&HandlerProgram::sql("SELECT s FROM a WHERE n < 0"), records, in_batch);
            assert_eq!((nothing.out_records_per_record, nothing.out_bytes_per_record), (0.0, 0.0));
        }
    }
    let fixed = measured(&HandlerProgram::sql("SELECT n FROM a"), 100, 20);
    assert_eq!((fixed.out_records_per_record, fixed.out_bytes_per_record), (1.0, 8.0));
    // The sample comes in whole but for its last time.
    let half = measured(&HandlerProgram::sql("SELECT * FROM a WHERE n < 50"), 100, 100);
    assert!((half.out_records_per_record - 0.5).abs() < 0.01, "{half:?}");
    let third = measured(&native("sample").with("every", "3"), 100, 100);
    assert!((third.out_records_per_record - 1.0 / 3.0).abs() < 0.01, "{third:?}");
}

#[test]
fn a_slow_handler_is_run_a_few_times_only() {
    let found = measured(&HandlerProgram::native("work").with("ns", "1000000"), 1000, 200);
    assert!(found.batches < 100, "{found:?}");
}

#[test]
fn without_a_record_there_is_nothing_to_measure() {
    let pass = HandlerProgram::native("pass");
    for sample in [&[][..], &[1, 2, 3], &[0; 64]] {
        assert_eq!(measure(&mut maker(&pass), &format(), sample, 10), None);
    }
    // The part before a record that is wrong is measured.
    let mut torn = sample(7);
    torn.extend([9; 13]);
    assert_eq!(measure(&mut maker(&pass), &format(), &torn, 10).unwrap().records, 7);
}
