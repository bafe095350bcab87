// Stands in for Gloo's header of this name, which LibTorch needs and does not ship: nothing of it is used.
#pragma once
