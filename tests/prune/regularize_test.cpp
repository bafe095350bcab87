// regularize
