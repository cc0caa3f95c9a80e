//! The placement of handlers, decided without touching anything: the known state comes in as values, a plan goes out.
//!
//! [`conversions`] is the graph of the conversions between a stream's formats, and the cheapest chain through it.
//! [`order`] says what each step of a chain has to make, so that what nobody needs is left out as early as can be.
//! [`load`] is what handlers cost and what execution contexts have left; [`admission`] says where one handler fits,
//! [`placement`] where several go that are joined, [`plan`] what has to change so that there is what is wanted, and
//! [`balance`] what is to be moved while everything runs, by [`work`], what handlers take where they run.
//!
//! [`access`] says which identity may do what.
//!
//! No clock, socket, file or thread: the runtime carries out what is planned here, between two batches.
#![forbid(unsafe_code)]

pub mod access;
pub mod admission;
pub mod balance;
pub mod conversions;
pub mod figures;
pub mod load;
pub mod order;
pub mod placement;
pub mod plan;
pub mod work;
