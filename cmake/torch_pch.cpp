// Holds the precompiled torch/torch.h that every target on LibTorch reuses.
