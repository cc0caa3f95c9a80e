//! The stack that a daemon's threads have: recursion that is too deep for it is to be found, and the process's first thread
//! has four times as much.

/// The default of Rust's threads.
const STACK_BYTES: usize = 2 << 20;

/// Runs `work` on a stack of that size. A panic ends the process, as it does on the first thread.
pub fn run(work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        thread.expect("a thread").join().expect("no panic gets out");
    });
}
