/* The text of api/openapi.yaml, put into the program by the build. */
#ifndef SERVICE_OPENAPI_H
#define SERVICE_OPENAPI_H

extern const char *const service_openapi;

#endif
