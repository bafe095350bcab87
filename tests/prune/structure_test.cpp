// structure
