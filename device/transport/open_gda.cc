#include <string>

#include "absl/strings/str_format.h"
#include "client/base/status_macros.h"
#include "device/transport/gda_plan.h"
#include "device/transport/gda_provider.h"
#include "device/transport/gda_proxy.h"
#include "device/transport/soft_nic_provider.h"

namespace cco {

absl::StatusOr<std::unique_ptr<GdaProvider>> open_gda(std::string_view name,
                                                      const TransportTeam& team,
                                                      const GdaPlan& plan) {
  CCO_RETURN_IF_ERROR(check_gda_plan(plan, team));
  if (name.empty() || name == "proxy") return open_gda_proxy(team, plan);
  if (name == "mlx5" || name == "bnxt" || name == "ionic") return open_soft_nic(name, team, plan);
  return absl::InvalidArgumentError(
      absl::StrFormat("no GDA provider '%s': proxy, mlx5, bnxt, ionic", std::string(name)));
}

}  // namespace cco
