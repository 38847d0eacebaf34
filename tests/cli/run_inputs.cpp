// attile run: every kind of bad input, and the forms of .npy files.
#include "tests/cli/command_line.h"
#include "tests/support/catch_compat.h"

using namespace attile::test;

TEST_CASE("files of the wrong kind or shape are refused in words") {
  const SmallInputs inputs;
  const ScratchPlace place;
  const std::string f4 = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 5, 4), }", data(160, '\0');
  struct Bad {
    std::string bytes, text;
    int code = 2;
  };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = f4;
    return npy_bytes(text.replace(text.find(from), from.size(), to), data);
  };
  const std::vector<Bad> files = {
      {"", "cut short"},
      {"PK\x03\x04 something else", "no .npy file"},
      {npy_bytes(f4, data).substr(0, 9), "the length of the header"},
      {npy_bytes(f4, data).substr(0, 60), "cut short: the header"},
      {npy_bytes(f4, data.substr(1)), "cut short: its shape needs 160 bytes of data and 159 are there"},
      {npy_bytes(f4, data + "x"), "left over"},
      {npy_bytes(f4, data, 3), "version 3.0"},
      {with("<f4", "<f8"), "'<f8' is not supported"},
      {with("<f4", ">f4"), "'>f4' is not supported"},
      {with("'<f4'", "[('a', '<f4')]"), "records"},
      {with("<f4", "<i4"), "holds int32"},
      {with("'shape'", "'shapes'"), "unknown key 'shapes'"},
      {with("'fortran_order': False, ", ""), "no 'fortran_order'"},
      {with("False", "0"), "True or False is expected"},
      {with("'descr'", "'shape': (1,), 'descr'"), "names 'shape' twice"},
      {with("(1, 2, 5, 4)", "(1, 2, 5, -4)"), "an extent that is not negative"},
      {with("(1, 2, 5, 4)", "(1, 2, 5, 4"), "is expected at byte"},
      {with("(1, 2, 5, 4)", "(4294967296, 4294967296, 4294967296, 4)"), "larger than any tensor"},
      {with("(1, 2, 5, 4)", "(99999999999999999999, 1, 1, 1)"), "larger than any tensor"},
      {with("(1, 2, 5, 4)", "(1099511627776, 1024, 1, 1)"), "cut short"},
      {with("(1, 2, 5, 4)", "(1, 1, 1, 1, 2, 5, 4)"), "7 dims"},
      {with("(1, 2, 5, 4)", "(2, 5, 4)"), "has four dims"},
      {with("(1, 2, 5, 4)", "(1, 2, 4, 5)"), "'k' has shape [1, 2, 7, 4]"},
      {with("(1, 2, 5, 4)", "(2, 1, 5, 4)"), "1 query heads are no multiple of 2 kv heads"},
  };
  for (const Bad& bad : files) {
    write_text(inputs.path("q.npy"), bad.bytes);
    const Finished f = attile_command(inputs.run());
    INFO(bad.text << "\n" << text_of(f));
    CHECK(f.code == bad.code);
    CHECK_THAT(f.err, ContainsSubstring(bad.text));
    CHECK(f.out.empty());
  }
  write_text(inputs.path("q.npy"), with("(1, 2, 5, 4)", "(1, 2, 5, 4)"));
  CHECK(attile_command(inputs.run()).code == 0);
}

TEST_CASE("files that cannot be read end with exit code 1") {
  const SmallInputs inputs;
  const Finished missing =
      attile_command({"run", "--q", "/no/such.npy", "--k", inputs.path("k.npy"), "--v", inputs.path("v.npy")});
  CHECK(missing.code == 1);
  CHECK_THAT(missing.err, ContainsSubstring("/no/such.npy: the file cannot be read: No such file"));
  const Finished folder = attile_command({"run", "--q", "/", "--k", inputs.path("k.npy"), "--v", inputs.path("v.npy")});
  CHECK(folder.code == 1);
  CHECK_THAT(folder.err, ContainsSubstring("Is a directory"));
  const Finished lone = attile_command({"run", "--q", inputs.path("q.npy")});
  CHECK(lone.code == 2);
  CHECK_THAT(lone.err, ContainsSubstring("go together"));
}

TEST_CASE("bfloat16, float16, version 2 and Fortran order are read") {
  const SmallInputs inputs;
  const ScratchPlace place;
  const std::string one_bf16("\x80\x3F", 2), one_f16("\x00\x3C", 2);
  const auto repeated = [](const std::string& piece, int times) {
    std::string all;
    for (int i = 0; i < times; ++i) all += piece;
    return all;
  };
  for (const auto& [descr, one] : {std::pair{"<V2", one_bf16}, std::pair{"|V2", one_bf16},
                                   std::pair{"bfloat16", one_bf16}, std::pair{"<f2", one_f16}})
    for (const int version : {1, 2}) {
      const auto file = [&](const std::string& shape, int count) {
        return npy_bytes("{'descr': '" + std::string(descr) + "', 'fortran_order': False, 'shape': " + shape + "}",
                         repeated(one, count), version);
      };
      write_text(inputs.path("q.npy"), file("(1, 2, 5, 4)", 40));
      write_text(inputs.path("k.npy"), file("(1, 2, 7, 4)", 56));
      write_text(inputs.path("v.npy"), file("(1, 2, 7, 3)", 42));
      const Finished f = attile_command(inputs.run({"--check", "--out", (place / "o.npy").string()}));
      INFO(descr << " version " << version << "\n" << text_of(f));
      REQUIRE(f.code == 0);
      CHECK(floats_of(read_text(place / "o.npy"), "(1, 2, 5, 3)") == std::vector<float>(30, 1.0f));
    }
  // One key: o is v. In Fortran order the first index varies fastest.
  const std::string v = npy_floats({1, 2, 1, 3}, {1, 4, 2, 5, 3, 6});
  std::string fortran = v;
  fortran.replace(fortran.find("False"), 5, "True ");
  write_text(inputs.path("q.npy"), npy_floats({1, 2, 1, 4}, std::vector<float>(8, 1)));
  write_text(inputs.path("k.npy"), npy_floats({1, 2, 1, 4}, std::vector<float>(8, 1)));
  write_text(inputs.path("v.npy"), fortran);
  REQUIRE(attile_command(inputs.run({"--out", (place / "o.npy").string()})).code == 0);
  CHECK(floats_of(read_text(place / "o.npy"), "(1, 2, 1, 3)") == std::vector<float>{1, 2, 3, 4, 5, 6});
}

TEST_CASE("captured tensors come from files, with their types checked") {
  const SmallInputs inputs;
  const ScratchPlace place;
  const auto write = [&](const std::string& descr, const std::string& shape, const std::string& data) {
    write_text(place / "t.npy",
               npy_bytes("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }", data));
  };
  const std::string path = (place / "t.npy").string();
  write("<i8", "(1,)", std::string("\x03\0\0\0\0\0\0\0", 8));
  CHECK(attile_command(inputs.run({"--kv-lens", path, "--check"})).code == 0);
  write("<i8", "(1,)", std::string("\0\0\0\0\x01\0\0\0", 8));
  CHECK_THAT(attile_command(inputs.run({"--kv-lens", path})).err, ContainsSubstring("does not fit in int32"));
  write("|b1", "(1, 1, 5, 7)", std::string(35, '\x01'));
  CHECK(attile_command(inputs.run({"--mask", path, "--check"})).code == 0);
  write("|b1", "(1, 1, 5, 7)", std::string(35, '\x02'));
  CHECK_THAT(attile_command(inputs.run({"--mask", path})).err, ContainsSubstring("neither 0 nor 1"));
  write("<f4", "(1, 1, 5, 7)", std::string(140, '\0'));
  CHECK_THAT(attile_command(inputs.run({"--mask", path})).err, ContainsSubstring("a mask holds bool"));
  CHECK(attile_command(inputs.run({"--bias", path, "--check"})).code == 0);
  CHECK_THAT(attile_command(inputs.run({"--kv-lens", path})).err, ContainsSubstring("int32 is needed"));
}

TEST_CASE("run refuses wrong words with exit code 2 and says what is right") {
  const SmallInputs inputs;
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"run", "--hed-dim", "64"}, "--hed-dim is not known; did you mean --head-dim?"},
      {{"run", "--head-dim", "many"}, "--head-dim"},
      {{"run", "--head-dim", "-3"}, "--head-dim"},
      {{"run", "--heads", "6", "--kv-heads", "4"}, "heads"},
      {{"run", "--dtype", "float64"}, "known are float32, bfloat16 and float16"},
      {{"run", "--rule", "softmin"}, "--rule"},
      {{"run", "--window", "3"}, "a window is left,right"},
      {{"run", "--window", "a,b"}, "\"a\" is not a number"},
      {{"run", "--top-k", "129"}, "--top-k"},
      {{"run", "--dropout", "1.5"}, "--dropout"},
      {{"run", "--device", "tpu"}, "not a device"},
      {{"run", "--threads", "-1"}, "--threads"},
      {{"run", "--kv-lens", "5000"}, "kv_lens"},
      {{"run", "--cu-seqlens-k", "0,4"}, "cu-seqlens-q is missing"},
      {{"run", "extra"}, "\"extra\" is one argument too many"},
      {{"run", "--q", inputs.path("q.npy"), "--k", inputs.path("k.npy"), "--v", inputs.path("v.npy"), "--heads", "2"},
       "--heads: the files' shapes say this already"},
      {{"run", "--q", inputs.path("q.npy"), "--k", inputs.path("k.npy"), "--v", inputs.path("v.npy"), "--random"},
       "--random"},
      {{"run", "--rule", "linear", "--lse-out", "x"}, "lse"},
  };
  for (const auto& [words, text] : wrong) {
    const Finished f = attile_command(words);
    INFO(words[1] << "\n" << text_of(f));
    CHECK(f.code == 2);
    CHECK_THAT(f.err, ContainsSubstring(text));
    CHECK(f.out.empty());
  }
  CHECK(attile_command({"run", "--device", "cuda:0"}).code == 1);
  CHECK_THAT(attile_command({"run", "--device", "cuda"}).err, ContainsSubstring("CUDA driver"));
  CHECK_THAT(attile_command({"run", "--batch", "2000000000", "--heads", "2000000000"}).err,
             ContainsSubstring("larger than any tensor"));
  CHECK(attile_command({"run", "--batch", "100000", "--heads", "1000"}).code == 1);
}

TEST_CASE("a schedule file is read strictly and an illegal schedule is refused with its reasons") {
  const ScratchPlace place;
  const std::string path = (place / "schedule.yaml").string();
  const std::vector<std::string> words{"run", "--seqlen-q", "40", "--repeat", "1", "--check", "--schedule", path};
  write_text(path, "tile_rows: 96\ntile_kays: 64\n");
  const Finished unknown = attile_command(words);
  CHECK(unknown.code == 2);
  CHECK_THAT(unknown.err, ContainsSubstring(path + ":2:1"));
  write_text(path, "lanes: rows\ntile_rows: 1\n");
  const Finished illegal = attile_command(words);
  CHECK(illegal.code == 1);
  CHECK_THAT(illegal.err, ContainsSubstring("is not legal"));
  write_text(path, "lanes: positions\ntile_rows: 4\ntile_keys: 32\nsplits: 2\n");
  const Finished right = attile_command(words);
  INFO(text_of(right));
  CHECK(right.code == 0);
  CHECK_THAT(right.out, ContainsSubstring("tile 4x32"));
}
