//! The application's library: publish and subscribe.
