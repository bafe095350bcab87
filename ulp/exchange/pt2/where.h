// The functions that errors about a .pt2 file name.
#pragma once

namespace ulp::exchange::pt2 {

inline constexpr const char* kImportPt2Where = "exchange.import_pt2";
inline constexpr const char* kExportPt2Where = "exchange.export_pt2";

}  // namespace ulp::exchange::pt2
