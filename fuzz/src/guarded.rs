//! Doors behind which a library may panic, which is an error there.

use std::sync::Once;

static HOOK: Once = Once::new();

/// The engine's hook ends the process at every panic, also at one that is caught: this takes it away. A panic that gets out
/// ends the process still.
pub fn panics_may_be_caught() {
    HOOK.call_once(|| std::panic::set_hook(Box::new(|_| {})));
}
