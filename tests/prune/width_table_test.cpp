// width_table
