/* What flags, environment and plugstack.conf ask of a step, and what agent and tasks are told. */
#include <stdio.h>
#include <string.h>

#include "core/spank_config.h"
#include "core/spank_step.h"
#include "testing.h"

#define DEFAULT_AGENT "/usr/bin/deft-agent"

static const struct {
    const char *good[3];
    const char *bad[6];
} samples[SPANK_CONFIG_N_KEYS] = {
    [SPANK_CONFIG_MODE] = {{"observe", "auto", "observe"},
                           {"on", "AUTO", "auto ", "aut", "autos", "1"}},
    [SPANK_CONFIG_CONTROLLER] = {{"http://c:1", "https://10.0.0.1:7", "http://[::1]:80"},
                                 {"c:1", "http://", "https://", "ftp://c", "http:/c", " http://c"}},
    [SPANK_CONFIG_EPSILON] = {{"0", "0.05", "1e-3"}, {"-0.1", "1.01", "nan", "0.1x", "1e", "0x1"}},
    [SPANK_CONFIG_MERGE] = {{"1", "64", "7"}, {"0", "65", "-1", "3.0", "4 ", "99999999999"}},
    [SPANK_CONFIG_DELAY] = {{"1", "64", "7"}, {"0", "65", "-1", "x", "+4", "1e1"}},
    [SPANK_CONFIG_LINKS] = {{"gloo:a", "gloo:a,gloo:b", "gloo"},
                            {",", "a,", ",a", "a,,b", "a,b,c,d,e,f,g,h,i", "a b"}},
    [SPANK_CONFIG_MASTER] = {{"n1", "10.0.0.1", "fe80::1%eth0"},
                             {"a b", "\t", "n\x7f", "n\xc3\xa4", "\n", " n"}},
    [SPANK_CONFIG_PORT] = {{"1", "65535", "29477"}, {"0", "65536", "-1", "a", "1-2", "0x1"}},
    [SPANK_CONFIG_PORTS] = {{"1024-65535", "3000-3000", "28000-28001"},
                            {"1023-2000", "2000-1999", "2000", "2000-", "-2000", "1-70000"}},
    [SPANK_CONFIG_PREFIX] = {{"gpu1-", "a", "A.b_c-9"},
                             {"a/b", "a b", "a:", "\xc3\xa4", "%d",
                              "123456789012345678901234567890123"}},
    [SPANK_CONFIG_AGENT] = {{"/a", "/usr/bin/deft-agent", "/b/c"},
                            {"a", "./a", "~/a", "../a", "a/b", " /a"}},
    [SPANK_CONFIG_TOKEN_FILE] = {{"/a", "/b", "/c"}, {"a", "./a", "~/a", "../a", "a/b", " /a"}},
    [SPANK_CONFIG_CA_FILE] = {{"/a", "/b", "/c"}, {"a", "./a", "~/a", "../a", "a/b", " /a"}},
    [SPANK_CONFIG_LOG_DIR] = {{"/a", "/b", "/c"}, {"a", "./a", "~/a", "../a", "a/b", " /a"}},
};

static void put(struct spank_config_values *values, int key, const char *text) {
    (void)snprintf(values->text[key], sizeof(values->text[key]), "%s", text);
}

static void every_key_takes_what_it_should(void **unused) {
    (void)unused;
    for (int key = 0; key < SPANK_CONFIG_N_KEYS; key++) {
        for (size_t i = 0; i < 3; i++) {
            struct spank_config_values values = {0};
            char why[SPANK_CONFIG_WHY_BYTES] = "";
            assert_int_equal(spank_config_take(&values, (enum spank_config_key)key, "--x",
                                               samples[key].good[i], why),
                             0);
            assert_string_equal(values.text[key], samples[key].good[i]);
        }
        for (size_t i = 0; i < 6; i++) {
            struct spank_config_values values = {0};
            char why[SPANK_CONFIG_WHY_BYTES] = "";
            assert_int_equal(spank_config_take(&values, (enum spank_config_key)key, "--name",
                                               samples[key].bad[i], why),
                             -1);
            assert_string_equal(values.text[key], "");
            assert_memory_equal(why, "--name ", 7);
            assert_true(strstr(why, "expected") != NULL || strstr(why, "has a space") != NULL);
        }
    }
}

static void lengths_are_bounded(void **unused) {
    (void)unused;
    char text[SPANK_CONFIG_VALUE_BYTES + 1];
    char why[SPANK_CONFIG_WHY_BYTES];
    struct spank_config_values values = {0};
    memset(text, 'a', sizeof(text));
    text[0] = '/';
    text[sizeof(text) - 1] = '\0';
    assert_int_equal(spank_config_take(&values, SPANK_CONFIG_AGENT, "x", text, why), -1);
    assert_string_equal(why, "x has 512 characters, expected 1 to 511");
    text[sizeof(text) - 2] = '\0';
    assert_int_equal(spank_config_take(&values, SPANK_CONFIG_AGENT, "x", text, why), 0);
    assert_int_equal(spank_config_take(&values, SPANK_CONFIG_AGENT, "x", "", why), -1);
    assert_int_equal(spank_config_take(&values, SPANK_CONFIG_AGENT, "x", NULL, why), -1);
}

/* Of each key the first source that says something counts, and only sources that it has. */
static void flags_win_over_environment_over_plugstack(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 2000; round++) {
        struct spank_config_values sources[3] = {0};
        struct spank_config config;
        char why[SPANK_CONFIG_WHY_BYTES] = "";
        for (int key = 0; key < SPANK_CONFIG_N_KEYS; key++) {
            const struct spank_config_name *name = &spank_config_names[key];
            const int may[3] = {name->flag != NULL, name->variable != NULL,
                                name->plugstack != NULL};
            for (size_t i = 0; i < 3; i++) {
                if (may[i] && testing_random_below(&state, 2) == 0) {
                    put(&sources[i], key, samples[key].good[i]);
                }
            }
        }
        put(&sources[2], SPANK_CONFIG_CONTROLLER, samples[SPANK_CONFIG_CONTROLLER].good[2]);
        int result =
            spank_config_settle(&sources[0], &sources[1], &sources[2], DEFAULT_AGENT, &config, why);
        assert_int_equal(result, 0);
        int asked = spank_config_is_asked(&sources[0], &sources[1], &sources[2]);
        assert_int_equal(asked, config.mode != SPANK_CONFIG_OFF);
        for (int key = 0; key < SPANK_CONFIG_N_KEYS && asked; key++) {
            const char *expected = key == SPANK_CONFIG_AGENT ? DEFAULT_AGENT : "";
            for (size_t i = 3; i-- > 0;) {
                expected = sources[i].text[key][0] != '\0' ? sources[i].text[key] : expected;
            }
            assert_string_equal(config.settled.text[key], expected);
        }
    }
}

static void only_what_counts_must_be_right(void **unused) {
    (void)unused;
    struct spank_config config;
    char why[SPANK_CONFIG_WHY_BYTES];
    for (int key = 1; key < SPANK_CONFIG_N_KEYS; key++) {
        struct spank_config_values flags = {0};
        struct spank_config_values environment = {0};
        struct spank_config_values plugstack = {0};
        if (spank_config_names[key].variable == NULL) {
            continue;
        }
        put(&environment, key, samples[key].bad[0]);
        put(&plugstack, SPANK_CONFIG_CONTROLLER, "http://c:1");
        /* Nobody asked. */
        assert_int_equal(
            spank_config_settle(&flags, &environment, &plugstack, DEFAULT_AGENT, &config, why), 0);
        assert_int_equal(config.mode, SPANK_CONFIG_OFF);
        put(&flags, SPANK_CONFIG_MODE, "auto");
        assert_int_equal(
            spank_config_settle(&flags, &environment, &plugstack, DEFAULT_AGENT, &config, why), -1);
        assert_int_equal(config.mode, SPANK_CONFIG_OFF);
        assert_memory_equal(why, spank_config_names[key].variable,
                            strlen(spank_config_names[key].variable));
        if (spank_config_names[key].flag != NULL) {
            put(&flags, key, samples[key].good[0]);
            assert_int_equal(
                spank_config_settle(&flags, &environment, &plugstack, DEFAULT_AGENT, &config, why),
                0);
            assert_int_equal(config.mode, SPANK_CONFIG_AUTO);
        }
    }
}

static void a_controller_is_needed(void **unused) {
    (void)unused;
    struct spank_config_values flags = {0};
    struct spank_config_values none = {0};
    struct spank_config config;
    char why[SPANK_CONFIG_WHY_BYTES];
    put(&flags, SPANK_CONFIG_MODE, "observe");
    assert_int_equal(spank_config_settle(&flags, &none, &none, DEFAULT_AGENT, &config, why), -1);
    assert_non_null(strstr(why, "--deft-controller"));
    put(&flags, SPANK_CONFIG_MODE, "off");
    assert_int_equal(spank_config_settle(&flags, &none, &none, DEFAULT_AGENT, &config, why), 0);
    /* Off from the flag wins over whatever else asks. */
    put(&none, SPANK_CONFIG_MODE, "auto");
    assert_int_equal(spank_config_settle(&flags, &none, &none, DEFAULT_AGENT, &config, why), 0);
    assert_int_equal(config.mode, SPANK_CONFIG_OFF);
    assert_false(spank_config_is_asked(&flags, &none, &none));
}

static void plugstack_keys_are_known_ones(void **unused) {
    (void)unused;
    struct spank_config_values values = {0};
    char why[SPANK_CONFIG_WHY_BYTES];
    char good[3][64] = {"controller=http://c:1", "ports=3000-3999", "prefix=gpu1-"};
    char *const words[] = {good[0], good[1], good[2]};
    assert_int_equal(spank_config_plugstack(&values, 3, words, why), 0);
    assert_string_equal(values.text[SPANK_CONFIG_PORTS], "3000-3999");
    static const char *const wrong[] = {"colour=red", "controller", "=x",     "mode=on",
                                        "master=n1",  "Mode=auto",  "ports=", "deft-mode=auto"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char text[64];
        char *const word[] = {text};
        (void)snprintf(text, sizeof(text), "%s", wrong[i]);
        assert_int_equal(spank_config_plugstack(&values, 1, word, why), -1);
        assert_non_null(strstr(why, "plugstack.conf"));
    }
}

static void interfaces_become_links(void **unused) {
    (void)unused;
    static const char *const pairs[][2] = {{"eth0", "gloo:eth0"},
                                           {"ib0,ib1", "gloo:ib0,gloo:ib1"},
                                           {"gloo:eth0,eth1", "gloo:eth0,gloo:eth1"},
                                           {"gloo", "gloo"},
                                           {"gloo,gloo0", "gloo,gloo:gloo0"}};
    struct spank_config_values flags = {0};
    struct spank_config_values none = {0};
    struct spank_config config;
    char why[SPANK_CONFIG_WHY_BYTES];
    char many[SPANK_CONFIG_VALUE_BYTES];
    put(&flags, SPANK_CONFIG_MODE, "auto");
    put(&flags, SPANK_CONFIG_CONTROLLER, "http://c:1");
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        put(&flags, SPANK_CONFIG_LINKS, pairs[i][0]);
        assert_int_equal(spank_config_settle(&flags, &none, &none, DEFAULT_AGENT, &config, why), 0);
        assert_string_equal(config.settled.text[SPANK_CONFIG_LINKS], pairs[i][1]);
    }
    memset(many, 'a', sizeof(many));
    many[sizeof(many) - 1] = '\0';
    put(&flags, SPANK_CONFIG_LINKS, many);
    assert_int_equal(spank_config_settle(&flags, &none, &none, DEFAULT_AGENT, &config, why), -1);
}

static struct spank_step make_step(uint32_t job, uint32_t step) {
    return (struct spank_step){.job = job,
                               .step = step,
                               .array_job = SPANK_STEP_NONE,
                               .array_task = SPANK_STEP_NONE,
                               .n_nodes = 2,
                               .n_tasks = 4,
                               .n_local_tasks = 2,
                               .user = 1000,
                               .group = 1000};
}

static void steps_have_the_names_that_users_know(void **unused) {
    (void)unused;
    char id[SPANK_STEP_ID_BYTES];
    struct spank_step step = make_step(123, 0);
    spank_step_id(&step, "", id);
    assert_string_equal(id, "123");
    step = make_step(12, 3);
    spank_step_id(&step, "", id);
    assert_string_equal(id, "12.3");
    step = make_step(36200, 0);
    step.array_job = 36199;
    step.array_task = 0;
    spank_step_id(&step, "", id);
    assert_string_equal(id, "36199_0");
    step.step = 2;
    spank_step_id(&step, "gpu1-", id);
    assert_string_equal(id, "gpu1-36199_0.2");
}

static void the_first_node_of_a_list_is_found(void **unused) {
    (void)unused;
    static const char *const pairs[][2] = {{"n1", "n1"},
                                           {"n1,m2", "n1"},
                                           {"n[1-3],m7", "n1"},
                                           {"n[01-20,33]", "n01"},
                                           {"n[7,9-12]", "n7"},
                                           {"a[1-2]b[3-4]", "a1b3"},
                                           {"n[5]", "n5"},
                                           {"rack-3-n[008-011", "rack-3-n008"},
                                           {"n1.site.org,x", "n1.site.org"},
                                           {"gpu[1-2]-ib", "gpu1-ib"}};
    char name[16];
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        assert_int_equal(spank_step_first_node(pairs[i][0], name, sizeof(name)), 0);
        assert_string_equal(name, pairs[i][1]);
    }
    assert_int_equal(spank_step_first_node("", name, sizeof(name)), -1);
    assert_int_equal(spank_step_first_node(",n1", name, sizeof(name)), -1);
    assert_int_equal(spank_step_first_node("sixteen-letters-", name, sizeof(name)), -1);
    assert_int_equal(spank_step_first_node("fifteen-letters", name, sizeof(name)), 0);
}

static void sockets_fit_and_differ(void **unused) {
    (void)unused;
    struct spank_step step = make_step(UINT32_MAX, UINT32_MAX);
    char longest[SPANK_STEP_SOCKET_BYTES];
    char other[SPANK_STEP_SOCKET_BYTES];
    step.node = UINT32_MAX;
    spank_step_socket(&step, UINT64_MAX, longest);
    assert_true(strlen(longest) + 1 < sizeof(longest)); /* nothing was cut */
    assert_int_equal(longest[0], '@');
    spank_step_socket(&step, UINT64_MAX - 1, other);
    assert_string_not_equal(longest, other);
    step.node--;
    spank_step_socket(&step, UINT64_MAX, other);
    assert_string_not_equal(longest, other);
}

static void ports_stay_in_range_and_apart(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 500; round++) {
        uint16_t first = (uint16_t)(1024 + testing_random_below(&state, 60000));
        uint16_t last = (uint16_t)(first + testing_random_below(&state, 65536U - first));
        uint32_t n_ports = (uint32_t)last - first + 1;
        uint32_t job = (uint32_t)testing_random_below(&state, UINT64_C(1) << 26);
        uint32_t other = 1 + (uint32_t)testing_random_below(&state, n_ports > 1 ? n_ports - 1 : 1);
        struct spank_step a = make_step(job, 0);
        struct spank_step b = make_step(job + other, 0);
        uint16_t port = spank_step_port(&a, first, last);
        assert_true(port >= first && port <= last);
        if (n_ports > 1) {
            assert_int_not_equal(port, spank_step_port(&b, first, last));
        }
        b = make_step(job, other);
        if (n_ports % 7919 != 0 && n_ports > 1) {
            assert_int_not_equal(port, spank_step_port(&b, first, last));
        }
    }
}

static int holds(const struct spank_words *words, const char *text) {
    for (size_t i = 0; i < words->n_words; i++) {
        if (strcmp(words->words[i], text) == 0) {
            return 1;
        }
    }
    return 0;
}

static int begins(const struct spank_words *words, const char *text) {
    for (size_t i = 0; i < words->n_words; i++) {
        if (strncmp(words->words[i], text, strlen(text)) == 0) {
            return 1;
        }
    }
    return 0;
}

static void settle_all(struct spank_config *out) {
    struct spank_config_values plugstack = {0};
    struct spank_config_values none = {0};
    char why[SPANK_CONFIG_WHY_BYTES];
    char text[8][64] = {
        "mode=auto",  "controller=http://c:1", "token_file=/etc/t", "log_dir=/var/log/d",
        "links=eth0", "max_merge=3",           "prefix=gpu1-",      "ca_file=/etc/ca"};
    char *const words[] = {text[0], text[1], text[2], text[3], text[4], text[5], text[6], text[7]};
    assert_int_equal(spank_config_plugstack(&plugstack, 8, words, why), 0);
    assert_int_equal(spank_config_settle(&none, &none, &plugstack, DEFAULT_AGENT, out, why), 0);
}

static void the_agent_gets_what_it_reads(void **unused) {
    (void)unused;
    static struct spank_words words;
    struct spank_config config;
    struct spank_step step = make_step(7, 0);
    settle_all(&config);
    const struct spank_told told = {.config = &config,
                                    .step = &step,
                                    .node_name = "n2",
                                    .socket = "@deft-7",
                                    .master = "n1",
                                    .port = 28000,
                                    .title = "mnist"};
    spank_step_agent_words(&told, 3, &words);
    static const char *const expected[] = {"/usr/bin/deft-agent",
                                           "--socket",
                                           "@deft-7",
                                           "--controller",
                                           "http://c:1",
                                           "--job",
                                           "gpu1-7",
                                           "--mode",
                                           "auto",
                                           "--ready-fd=3",
                                           "--exit-with-fd=3",
                                           "--after-ranks",
                                           "--log",
                                           "/var/log/d/deft-agent-gpu1-7-n2.log",
                                           "--max-merge",
                                           "3",
                                           "--ca-file",
                                           "/etc/ca"};
    assert_int_equal(words.n_words, sizeof(expected) / sizeof(expected[0]));
    for (size_t i = 0; i < words.n_words; i++) {
        assert_string_equal(words.words[i], expected[i]);
    }
    assert_null(words.words[words.n_words]);

    char job[6][64] = {"HOME=/h/me",           "LD_PRELOAD=/evil.so",   "DEFT_TOKEN=deft_x",
                       "DEFT_TOKEN_FILE=/old", "http_proxy=http://p:1", "HOMER=simpson"};
    char *const environment[] = {job[0], job[1], job[2], job[3], job[4], job[5], NULL};
    memset(&words, 0, sizeof(words));
    spank_step_agent_environment(&told, environment, &words);
    assert_int_equal(words.n_words, 3);
    assert_true(holds(&words, "HOME=/h/me"));
    assert_true(holds(&words, "DEFT_TOKEN=deft_x"));
    assert_true(holds(&words, "DEFT_TOKEN_FILE=/etc/t"));
    memset(&words, 0, sizeof(words));
    spank_step_agent_environment(&told, NULL, &words);
    assert_int_equal(words.n_words, 1);
}

static void too_much_environment_is_noticed(void **unused) {
    (void)unused;
    static struct spank_words words;
    static char home[sizeof(words.text) + 16] = "HOME=";
    struct spank_config config;
    struct spank_step step = make_step(7, 0);
    char *const environment[] = {home, NULL};
    settle_all(&config);
    const struct spank_told told = {.config = &config,
                                    .step = &step,
                                    .node_name = "n2",
                                    .socket = "@deft-7",
                                    .master = "n1",
                                    .title = ""};
    memset(home + 5, 'x', sizeof(home) - 6);
    spank_step_agent_environment(&told, environment, &words);
    assert_true(words.is_full);
}

static void tasks_are_told_where_they_meet(void **unused) {
    (void)unused;
    static struct spank_words words;
    struct spank_config config;
    struct spank_step step = make_step(7, 1);
    settle_all(&config);
    struct spank_told told = {.config = &config,
                              .step = &step,
                              .node_name = "n2",
                              .socket = "@deft-7",
                              .master = "n1",
                              .port = 28001,
                              .title = "mnist"};
    step.restarts = 2;
    spank_step_task_environment(&told, 3, 1, &words);
    static const char *const expected[] = {"DEFT_RANK=3",
                                           "DEFT_WORLD_SIZE=4",
                                           "DEFT_LOCAL_RANK=1",
                                           "DEFT_JOB_ID=gpu1-7.1",
                                           "DEFT_RESTART_COUNT=2",
                                           "DEFT_MASTER_ADDR=n1",
                                           "DEFT_MASTER_PORT=28001",
                                           "DEFT_AGENT_SOCKET=@deft-7",
                                           "DEFT_JOB_NAME=mnist",
                                           "DEFT_LINKS=gloo:eth0",
                                           "DEFT_CONTROLLER=http://c:1",
                                           "DEFT_TOKEN_FILE=/etc/t",
                                           "DEFT_CA_FILE=/etc/ca"};
    assert_int_equal(words.n_words, sizeof(expected) / sizeof(expected[0]));
    for (size_t i = 0; i < words.n_words; i++) {
        assert_true(holds(&words, expected[i]));
    }
    /* Without an agent what an outer step has left must go. */
    memset(&words, 0, sizeof(words));
    told.socket = "";
    told.master = "";
    spank_step_task_environment(&told, 3, 1, &words);
    assert_true(holds(&words, "DEFT_AGENT_SOCKET"));
    assert_true(holds(&words, "DEFT_MASTER_ADDR"));
    assert_false(begins(&words, "DEFT_AGENT_SOCKET="));
    assert_true(holds(&words, "DEFT_RANK=3"));
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_key_takes_what_it_should),
    cmocka_unit_test(lengths_are_bounded),
    cmocka_unit_test(flags_win_over_environment_over_plugstack),
    cmocka_unit_test(only_what_counts_must_be_right),
    cmocka_unit_test(a_controller_is_needed),
    cmocka_unit_test(plugstack_keys_are_known_ones),
    cmocka_unit_test(interfaces_become_links),
    cmocka_unit_test(steps_have_the_names_that_users_know),
    cmocka_unit_test(the_first_node_of_a_list_is_found),
    cmocka_unit_test(sockets_fit_and_differ),
    cmocka_unit_test(ports_stay_in_range_and_apart),
    cmocka_unit_test(the_agent_gets_what_it_reads),
    cmocka_unit_test(too_much_environment_is_noticed),
    cmocka_unit_test(tasks_are_told_where_they_meet),
};
TESTING_MAIN(cases)
