// Holds a precompiled header of LibTorch that targets reuse.
