// Holds a precompiled header that targets reuse.
