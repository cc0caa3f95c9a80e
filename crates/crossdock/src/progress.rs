//! Progress on standard error while that is a terminal; nothing otherwise.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a spinner turns.
const TICK: Duration = Duration::from_millis(100);

/// Progress through a file by its bytes; until its length is known, or if it has none, what was read so far.
pub(crate) fn of_bytes() -> ProgressBar {
    let progress = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if progress.is_hidden() {
        return progress;
    }
    progress.set_style(style("{spinner} {bytes} read, {msg}"));
    progress.enable_steady_tick(TICK);
    progress
}

/// Shows a bar, once there is a length.
pub(crate) fn show_length(progress: &ProgressBar) {
    if progress.length().is_some() {
        progress.set_style(style("{bar:30} {percent:>3} %, {msg}, {eta} left"));
    }
}

/// A style that is written in this program, so it is right; were it not, the library's own would do.
pub(crate) fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
