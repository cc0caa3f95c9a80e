//! Pools for sessions over packets. Some are kept for the next session: to map a pool and to give it back takes longer
//! than all else that a short subscription does, and stops the process's other threads meanwhile.

use crossdock_mailbox::{Pool, PoolConfig};
use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

/// Pools that are kept at most.
const MOST: usize = 8;
/// Large buffers that a session may have used whose pool is kept: what it has touched stays in memory.
const MOST_USED: u64 = 64;

/// Pools without a session, each with the process that had it: a child of `fork` has the same memory, and no right to it.
static SPARE: Mutex<Vec<(u32, Pool)>> = Mutex::new(Vec::new());

/// The pool of a session over packets. Its buffers may outlast it.
pub(super) struct LentPool {
    /// There until this is dropped.
    pool: Option<Pool>,
    /// The process that took it.
    of: u32,
    /// Large buffers handed out before.
    used_before: u64,
}

impl LentPool {
    /// One that was kept, or a new one of these classes: bytes of a buffer, and buffers. All are made of the same.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub(super) fn new(classes: &[(usize, usize)]) -> io::Result<LentPool> {
        let of = std::process::id();
        let spare = spare(|pools| {
            pools.retain(|(kept_by, _)| *kept_by == of);
            pools.pop()
        });
        let pool = match spare {
            Some((_, pool)) => pool,
            None => Pool::new(PoolConfig { classes: classes.to_vec() })?,
        };
        Ok(LentPool { used_before: used(&pool), of, pool: Some(pool) })
    }
}

impl Drop for LentPool {
    fn drop(&mut self) {
        let Some(pool) = self.pool.take() else { return };
        if self.of == std::process::id() && may_serve_again(&pool, self.used_before) {
            let kept = (self.of, pool);
            // One too many is given back outside of the lock.
            let too_many = spare(|pools| match pools.len() < MOST {
                true => {
                    pools.push(kept);
                    None
                }
                false => Some(kept),
            });
            drop(too_many);
        }
    }
}

impl Deref for LentPool {
    type Target = Pool;

    fn deref(&self) -> &Pool {
        let Some(pool) = &self.pool else { unreachable!("a pool is there until it is dropped") };
        pool
    }
}

impl DerefMut for LentPool {
    fn deref_mut(&mut self) -> &mut Pool {
        let Some(pool) = &mut self.pool else { unreachable!("a pool is there until it is dropped") };
        pool
    }
}

/// Whether nobody has a buffer of a pool's, and little of it was touched since `used_before` large ones were handed out.
fn may_serve_again(pool: &Pool, used_before: u64) -> bool {
    let is_whole = pool.stats().classes.iter().all(|class| class.in_use() == 0);
    is_whole && used(pool) - used_before <= MOST_USED
}

/// Gives back the pools that are kept: for when the process has had no link for a while.
pub(crate) fn give_pools_back() {
    drop(spare(std::mem::take));
}

/// Large buffers handed out so far.
fn used(pool: &Pool) -> u64 {
    pool.stats().classes.last().map_or(0, |class| class.allocated)
}

fn spare<T>(with: impl FnOnce(&mut Vec<(u32, Pool)>) -> T) -> T {
    // Nothing is left half-done where it is held.
    with(&mut SPARE.lock().unwrap_or_else(PoisonError::into_inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_serves_again_that_is_whole_and_was_hardly_used() {
        let mut pool = Pool::new(PoolConfig { classes: vec![(64, 4), (1024, 4)] }).expect("a small pool");
        let before = used(&pool);
        let held = pool.alloc(1000).expect("a large buffer");
        assert!(!may_serve_again(&pool, before), "one is in use");
        drop(held);
        assert!(may_serve_again(&pool, before));
        for _ in 0..MOST_USED {
            drop(pool.alloc(1000));
        }
        assert!(!may_serve_again(&pool, before), "one too many was used");
        assert!(may_serve_again(&pool, before + 1), "of the present session they count");
    }
}
