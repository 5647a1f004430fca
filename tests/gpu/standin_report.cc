/* What a whole process has done on the stand-in: one JSON object, written as it ends to the file
 * that GPU_STANDIN_REPORT names. */
#include "standin_streams.hpp"

#include <cstdio>
#include <cstdlib>

using namespace standin;

__attribute__((destructor)) static void report() {
    const char *path = getenv("GPU_STANDIN_REPORT");
    FILE *file = path != nullptr ? fopen(path, "we") : nullptr;
    if (file == nullptr) {
        return;
    }
    std::unique_lock<std::mutex> held(machine().lock);
    (void)fprintf(file, "{\"violation\": \"%s\", \"calls\": {", machine().violation.c_str());
    const char *separator = "";
    for (const auto &call : machine().calls) {
        (void)fprintf(file, "%s\"%s\": %llu", separator, call.first.c_str(),
                      static_cast<unsigned long long>(call.second));
        separator = ", ";
    }
    (void)fputs("}}\n", file);
    (void)fclose(file);
}
