// Stands for what a build of LibTorch with CUDA writes here: nothing that its headers need.
#pragma once
