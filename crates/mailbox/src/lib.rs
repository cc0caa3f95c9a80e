//! Segments, refcounted buffers, the batch descriptor, rings.
