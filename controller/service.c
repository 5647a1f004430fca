#include "service.h"

#include "service_answer.h"

const struct http_route service_routes[] = {
    {"POST", "/api/v1/jobs/{job}/incarnations", service_agent_register, SERVICE_AGENT},
    {"POST", "/api/v1/incarnations/{id}/reports", service_agent_report, SERVICE_AGENT},
    {"GET", "/api/v1/incarnations/{id}/events", service_agent_events, SERVICE_AGENT},
    {"GET", "/api/v1/jobs", service_view_jobs, SERVICE_VIEWER},
    {"GET", "/api/v1/jobs/{job}", service_view_job, SERVICE_VIEWER},
    {"DELETE", "/api/v1/jobs/{job}", service_admin_remove, SERVICE_OPERATOR},
    {"PUT", "/api/v1/jobs/{job}/mode", service_admin_mode, SERVICE_OPERATOR},
    {"PUT", "/api/v1/jobs/{job}/limits", service_admin_limits, SERVICE_OPERATOR},
    {"PUT", "/api/v1/jobs/{job}/pin", service_hold_pin, SERVICE_OPERATOR},
    {"PUT", "/api/v1/jobs/{job}/freeze", service_hold_freeze, SERVICE_OPERATOR},
    {"GET", "/api/v1/jobs/{job}/keep", service_hold_kept, SERVICE_VIEWER},
    {"PUT", "/api/v1/jobs/{job}/keep", service_hold_keep, SERVICE_OPERATOR},
    {"GET", "/api/v1/incarnations/{id}", service_view_incarnation, SERVICE_VIEWER},
    {"GET", "/api/v1/incarnations/{id}/iterations", service_view_iterations, SERVICE_VIEWER},
    {"GET", "/api/v1/incarnations/{id}/losses", service_view_losses, SERVICE_VIEWER},
    {"GET", "/api/v1/incarnations/{id}/links", service_view_links, SERVICE_VIEWER},
    {"GET", "/api/v1/incarnations/{id}/plans", service_view_plans, SERVICE_VIEWER},
    {"GET", "/api/v1/incarnations/{id}/decisions", service_view_decisions, SERVICE_VIEWER},
    {"GET", "/api/v1/incarnations/{id}/profile", service_view_profile, SERVICE_VIEWER},
    {"GET", "/api/v1/plans/{id}", service_view_plan, SERVICE_VIEWER},
    {"GET", "/api/v1/plans/{id}/explain", service_view_explain, SERVICE_VIEWER},
    {"POST", "/api/v1/simulate", service_simulate, SERVICE_VIEWER},
    {"GET", "/api/v1/tokens", service_token_list, SERVICE_OPERATOR},
    {"POST", "/api/v1/tokens", service_token_create, SERVICE_OPERATOR},
    {"DELETE", "/api/v1/tokens/{name}", service_token_revoke, SERVICE_OPERATOR},
    {"GET", "/api/v1/audit", service_audit_list, SERVICE_OPERATOR},
    {"GET", "/api/v1/config", service_config, SERVICE_OPERATOR},
    {"GET", "/metrics", service_metrics, SERVICE_VIEWER},
    {"GET", "/healthz", service_health, SERVICE_NOBODY},
    {"GET", "/readyz", service_ready, SERVICE_NOBODY},
    {"GET", "/openapi.yaml", service_spec, SERVICE_NOBODY},
    {"GET", "/", service_index, SERVICE_NOBODY},
};
const size_t service_n_routes = sizeof(service_routes) / sizeof(service_routes[0]);
