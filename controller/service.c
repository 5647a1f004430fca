#include "service.h"

#include "service_answer.h"

const struct http_route service_routes[] = {
    {"POST", "/api/v1/jobs/{job}/incarnations", service_agent_register},
    {"POST", "/api/v1/incarnations/{id}/reports", service_agent_report},
    {"GET", "/api/v1/incarnations/{id}/events", service_agent_events},
    {"GET", "/api/v1/jobs", service_view_jobs},
    {"GET", "/api/v1/jobs/{job}", service_view_job},
    {"PUT", "/api/v1/jobs/{job}/mode", service_admin_mode},
    {"PUT", "/api/v1/jobs/{job}/limits", service_admin_limits},
    {"GET", "/api/v1/incarnations/{id}", service_view_incarnation},
    {"GET", "/api/v1/incarnations/{id}/iterations", service_view_iterations},
    {"GET", "/api/v1/incarnations/{id}/losses", service_view_losses},
    {"GET", "/api/v1/incarnations/{id}/links", service_view_links},
    {"GET", "/api/v1/incarnations/{id}/plans", service_view_plans},
    {"GET", "/api/v1/incarnations/{id}/decisions", service_view_decisions},
    {"GET", "/api/v1/incarnations/{id}/profile", service_view_profile},
    {"GET", "/api/v1/plans/{id}", service_view_plan},
    {"GET", "/api/v1/plans/{id}/explain", service_view_explain},
    {"GET", "/healthz", service_health},
    {"GET", "/readyz", service_ready},
    {"GET", "/openapi.yaml", service_spec},
};
const size_t service_n_routes = sizeof(service_routes) / sizeof(service_routes[0]);
