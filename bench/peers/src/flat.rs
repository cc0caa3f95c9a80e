//! A flight for flatbuffers: what `flatc --rust` writes for the table below, its accessors by a macro instead of one by
//! one.
//!
//! ```text
//! table Flight {
//!   year:ushort; month:ubyte; day:ubyte; dep_time:int = null; sched_dep_time:int; dep_delay:double = null;
//!   arr_time:int = null; sched_arr_time:int; arr_delay:double = null; carrier:string; flight:int; tailnum:string;
//!   origin:string; dest:string; air_time:double = null; distance:int; hour:int; minute:int; time_hour:string;
//!   sequence:ulong;
//! }
//! root_type Flight;
//! ```

use flatbuffers::{
    FlatBufferBuilder, Follow, ForwardsUOffset, InvalidFlatbuffer, Table, VOffsetT, Verifiable, Verifier, WIPOffset,
};

use crate::Typed;

/// A flight in a buffer.
#[derive(Copy, Clone, PartialEq, Debug)]
pub struct Flight<'a> {
    table: Table<'a>,
}

impl<'a> Follow<'a> for Flight<'a> {
    type Inner = Flight<'a>;

    #[inline]
    // SAFETY: as `Follow::follow` asks: `loc` is where a table begins, which the caller verified or built.
    unsafe fn follow(buf: &'a [u8], loc: usize) -> Self::Inner {
        // SAFETY: see above.
        Self { table: unsafe { Table::new(buf, loc) } }
    }
}

/// Accessors of fields that are always there, as the slots of the table come.
macro_rules! accessors {
    ($($name:ident, $slot:literal, $ty:ty, $default:expr;)+) => {$(
        #[doc = concat!("The field `", stringify!($name), "`.")]
        #[inline]
        pub fn $name(&self) -> $ty {
            // SAFETY: the table is valid, and holds a value of this type in this slot or none.
            unsafe { self.table.get::<$ty>(4 + 2 * $slot, Some($default)) }.unwrap_or($default)
        }
    )+};
}

/// Accessors of scalars that may be null.
macro_rules! optional {
    ($($name:ident, $slot:literal, $ty:ty;)+) => {$(
        #[doc = concat!("The field `", stringify!($name), "`.")]
        #[inline]
        pub fn $name(&self) -> Option<$ty> {
            // SAFETY: the table is valid, and holds a value of this type in this slot or none.
            unsafe { self.table.get::<$ty>(4 + 2 * $slot, None) }
        }
    )+};
}

/// Accessors of text.
macro_rules! texts {
    ($($name:ident, $slot:literal;)+) => {$(
        #[doc = concat!("The field `", stringify!($name), "`.")]
        #[inline]
        pub fn $name(&self) -> Option<&'a str> {
            // SAFETY: the table is valid, and holds a text in this slot or none.
            unsafe { self.table.get::<ForwardsUOffset<&str>>(4 + 2 * $slot, None) }
        }
    )+};
}

impl<'a> Flight<'a> {
    accessors! {
        year, 0, u16, 0;
        month, 1, u8, 0;
        day, 2, u8, 0;
        sched_dep_time, 4, i32, 0;
        sched_arr_time, 7, i32, 0;
        flight, 10, i32, 0;
        distance, 15, i32, 0;
        hour, 16, i32, 0;
        minute, 17, i32, 0;
        sequence, 19, u64, 0;
    }
    optional! {
        dep_time, 3, i32;
        dep_delay, 5, f64;
        arr_time, 6, i32;
        arr_delay, 8, f64;
        air_time, 14, f64;
    }
    texts! {
        carrier, 9;
        tailnum, 11;
        origin, 12;
        dest, 13;
        time_hour, 18;
    }
}

impl Verifiable for Flight<'_> {
    #[inline]
    fn run_verifier(verifier: &mut Verifier<'_, '_>, pos: usize) -> Result<(), InvalidFlatbuffer> {
        verifier
            .visit_table(pos)?
            .visit_field::<u16>("year", slot(0), false)?
            .visit_field::<u8>("month", slot(1), false)?
            .visit_field::<u8>("day", slot(2), false)?
            .visit_field::<i32>("dep_time", slot(3), false)?
            .visit_field::<i32>("sched_dep_time", slot(4), false)?
            .visit_field::<f64>("dep_delay", slot(5), false)?
            .visit_field::<i32>("arr_time", slot(6), false)?
            .visit_field::<i32>("sched_arr_time", slot(7), false)?
            .visit_field::<f64>("arr_delay", slot(8), false)?
            .visit_field::<ForwardsUOffset<&str>>("carrier", slot(9), false)?
            .visit_field::<i32>("flight", slot(10), false)?
            .visit_field::<ForwardsUOffset<&str>>("tailnum", slot(11), false)?
            .visit_field::<ForwardsUOffset<&str>>("origin", slot(12), false)?
            .visit_field::<ForwardsUOffset<&str>>("dest", slot(13), false)?
            .visit_field::<f64>("air_time", slot(14), false)?
            .visit_field::<i32>("distance", slot(15), false)?
            .visit_field::<i32>("hour", slot(16), false)?
            .visit_field::<i32>("minute", slot(17), false)?
            .visit_field::<ForwardsUOffset<&str>>("time_hour", slot(18), false)?
            .visit_field::<u64>("sequence", slot(19), false)?
            .finish();
        Ok(())
    }
}

const fn slot(index: VOffsetT) -> VOffsetT {
    4 + 2 * index
}

/// Builds a flight as a finished buffer.
#[must_use]
pub fn build(flight: &Typed) -> Vec<u8> {
    let mut builder = FlatBufferBuilder::new();
    let [carrier, origin, dest, time_hour] =
        [&flight.carrier, &flight.origin, &flight.dest, &flight.time_hour].map(|text| builder.create_string(text));
    let tailnum = flight.tailnum.as_ref().map(|text| builder.create_string(text));
    // As flatc does it: the widest fields first.
    let table = builder.start_table();
    builder.push_slot::<u64>(slot(19), flight.sequence, 0);
    for (index, value) in [(5, flight.dep_delay), (8, flight.arr_delay), (14, flight.air_time)] {
        if let Some(value) = value {
            builder.push_slot_always::<f64>(slot(index), value);
        }
    }
    for (index, text) in
        [(9, Some(carrier)), (11, tailnum), (12, Some(origin)), (13, Some(dest)), (18, Some(time_hour))]
    {
        if let Some(text) = text {
            builder.push_slot_always::<WIPOffset<_>>(slot(index), text);
        }
    }
    for (index, value) in [(3, flight.dep_time), (6, flight.arr_time)] {
        if let Some(value) = value {
            builder.push_slot_always::<i32>(slot(index), value);
        }
    }
    builder.push_slot::<i32>(slot(4), flight.sched_dep_time, 0);
    builder.push_slot::<i32>(slot(7), flight.sched_arr_time, 0);
    builder.push_slot::<i32>(slot(10), flight.flight, 0);
    builder.push_slot::<i32>(slot(15), flight.distance, 0);
    builder.push_slot::<i32>(slot(16), flight.hour, 0);
    builder.push_slot::<i32>(slot(17), flight.minute, 0);
    builder.push_slot::<u16>(slot(0), flight.year, 0);
    builder.push_slot::<u8>(slot(1), flight.month, 0);
    builder.push_slot::<u8>(slot(2), flight.day, 0);
    let root = builder.end_table(table);
    builder.finish_minimal(root);
    builder.finished_data().to_vec()
}

/// The flight in a buffer, verified.
///
/// # Errors
/// The buffer is none.
#[inline]
pub fn verified(buffer: &[u8]) -> Result<Flight<'_>, InvalidFlatbuffer> {
    flatbuffers::root::<Flight<'_>>(buffer)
}

/// Flights in one buffer, each verified.
#[derive(Debug)]
pub struct Flights {
    bytes: Vec<u8>,
    /// Start and length of each.
    places: Vec<(usize, usize)>,
}

impl Flights {
    /// Builds them.
    ///
    /// # Errors
    /// The built bytes do not pass the verifier.
    pub fn of(flights: &[Typed]) -> Result<Flights, InvalidFlatbuffer> {
        let (mut bytes, mut places) = (Vec::new(), Vec::new());
        for flight in flights {
            let built = build(flight);
            verified(&built)?;
            places.push((bytes.len(), built.len()));
            bytes.extend(built);
            // Each begins at a multiple of 8, as the first does.
            bytes.resize(bytes.len().next_multiple_of(8), 0);
        }
        Ok(Flights { bytes, places })
    }

    /// Their bytes, one flight after the other.
    #[inline]
    pub fn buffers(&self) -> impl Iterator<Item = &[u8]> {
        self.places.iter().map(|(start, length)| &self.bytes[*start..start + length])
    }

    /// The flights, with no look at what was verified.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = Flight<'_>> {
        // SAFETY: `of` verified the same bytes, which nothing changes.
        self.buffers().map(|buffer| unsafe { flatbuffers::root_unchecked::<Flight<'_>>(buffer) })
    }
}
