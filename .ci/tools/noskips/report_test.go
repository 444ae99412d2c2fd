// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReport(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stream, want string
		good         bool
	}{
		"nothing": {
			want: "no test passed\n0 passed, 0 failed, 0 skipped\n",
		},
		"passed": {
			stream: `{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Output":"-test.shuffle 7\n"}
{"Action":"run","Package":"a","Test":"TestA"}
{"Action":"output","Package":"a","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"a","Test":"TestA","Output":"    a_test.go:3: quiet\n"}
{"Action":"output","Package":"a","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
{"Action":"pass","Package":"a","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"a","Output":"PASS\n"}
{"Action":"output","Package":"a","Output":"ok  \ta\t0.002s\n"}
{"Action":"pass","Package":"a","Elapsed":0.003}
`,
			want: "ok  \ta\t0.002s\n1 passed, 0 failed, 0 skipped\n",
			good: true,
		},
		"a package without tests is no skipped test": {
			stream: `{"Action":"run","Package":"a","Test":"TestA"}
{"Action":"pass","Package":"a","Test":"TestA"}
{"Action":"pass","Package":"a"}
{"Action":"output","Package":"b","Output":"?   \tb\t[no test files]\n"}
{"Action":"skip","Package":"b"}
`,
			want: "?   \tb\t[no test files]\n1 passed, 0 failed, 0 skipped\n",
			good: true,
		},
		"skipped, with and without a reason": {
			stream: `{"Action":"run","Package":"a","Test":"TestA"}
{"Action":"output","Package":"a","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"a","Test":"TestA","Output":"    a_test.go:3: no nft here:\n"}
{"Action":"output","Package":"a","Test":"TestA","Output":"        install it\n"}
{"Action":"output","Package":"a","Test":"TestA","Output":"--- SKIP: TestA (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestA"}
{"Action":"run","Package":"a","Test":"TestB"}
{"Action":"run","Package":"a","Test":"TestB/c"}
{"Action":"output","Package":"a","Test":"TestB/c","Output":"    --- SKIP: TestB/c (0.00s)\n"}
{"Action":"skip","Package":"a","Test":"TestB/c"}
{"Action":"pass","Package":"a","Test":"TestB"}
{"Action":"pass","Package":"a"}
`,
			want: "skipped: a TestA: a_test.go:3: no nft here: install it\n" +
				"skipped: a TestB/c: no reason given\n" +
				"no test may be skipped: install what it needs, or take it out\n" +
				"1 passed, 0 failed, 2 skipped\n",
		},
		"failed: every test's words": {
			stream: `{"Action":"run","Package":"a","Test":"TestA"}
{"Action":"run","Package":"a","Test":"TestB"}
{"Action":"output","Package":"a","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Action":"output","Package":"a","Test":"TestA","Output":"    a_test.go:3: quiet\n"}
{"Action":"output","Package":"a","Test":"TestB","Output":"    a_test.go:7: loud\n"}
{"Action":"pass","Package":"a","Test":"TestA"}
{"Action":"output","Package":"a","Test":"TestB","Output":"--- FAIL: TestB (0.00s)\n"}
{"Action":"fail","Package":"a","Test":"TestB"}
{"Action":"output","Package":"a","Output":"FAIL\n"}
{"Action":"output","Package":"a","Output":"FAIL\ta\t0.002s\n"}
{"Action":"fail","Package":"a"}
`,
			want: "    a_test.go:3: quiet\n    a_test.go:7: loud\n--- FAIL: TestB (0.00s)\nFAIL\nFAIL\ta\t0.002s\n" +
				"failed: a TestB\n    a_test.go:7: loud\n1 passed, 1 failed, 0 skipped\n",
		},
		"a package that failed outside its tests": {
			stream: `{"Action":"output","Package":"a","Output":"-test.shuffle 7\n"}
{"Action":"run","Package":"a","Test":"TestA"}
{"Action":"pass","Package":"a","Test":"TestA"}
{"Action":"output","Package":"a","Output":"leaked\n"}
{"Action":"fail","Package":"a"}
`,
			want: "-test.shuffle 7\nleaked\nfailed: a\n1 passed, 1 failed, 0 skipped\n",
		},
		"a data race reported to a test that passed": {
			stream: `{"Action":"run","Package":"a","Test":"TestA"}
{"Action":"run","Package":"a","Test":"TestB"}
{"Action":"output","Package":"a","Test":"TestA","Output":"WARNING: DATA RACE\n"}
{"Action":"output","Package":"a","Test":"TestA","Output":"--- PASS: TestA (0.00s)\n"}
{"Action":"pass","Package":"a","Test":"TestA"}
{"Action":"output","Package":"a","Test":"TestB","Output":"    testing.go:1: race detected during execution of test\n"}
{"Action":"fail","Package":"a","Test":"TestB"}
{"Action":"fail","Package":"a"}
`,
			want: "WARNING: DATA RACE\n--- PASS: TestA (0.00s)\n    testing.go:1: race detected during execution of test\n" +
				"failed: a TestB\n    testing.go:1: race detected during execution of test\n1 passed, 1 failed, 0 skipped\n",
		},
		"a package that didn't build": {
			stream: `{"ImportPath":"a [a.test]","Action":"build-output","Output":"./a_test.go:3: undefined: x\n"}
{"ImportPath":"a [a.test]","Action":"build-fail"}
{"Action":"start","Package":"a"}
{"Action":"output","Package":"a","Output":"FAIL\ta [build failed]\n"}
{"Action":"fail","Package":"a","FailedBuild":"a [a.test]"}
`,
			want: "./a_test.go:3: undefined: x\nFAIL\ta [build failed]\n" +
				"failed: a\nno test passed\n0 passed, 1 failed, 0 skipped\n",
		},
		"a test that didn't end": {
			stream: `{"Action":"run","Package":"a","Test":"TestA"}
{"Action":"output","Package":"a","Test":"TestA","Output":"panic: no\n"}
{"Action":"fail","Package":"a"}
`,
			want: "panic: no\nfailed: a TestA (did not end)\npanic: no\nno test passed\n0 passed, 1 failed, 0 skipped\n",
		},
		"a stream that breaks off": {
			stream: `{"Action":"run","Package":"a","Test":"TestA"}
{"Action":"pass","Package":"a","Test":"TestA"}`,
			want: "failed: a\n1 passed, 1 failed, 0 skipped\n",
		},
		"other words": {
			stream: "go: downloading example.com v1.0.0\n",
			want:   "go: downloading example.com v1.0.0\nno test passed\n0 passed, 0 failed, 0 skipped\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			r := newReport(&out)
			if err := r.read(strings.NewReader(test.stream)); err != nil {
				t.Fatal(err)
			}
			if good := r.close(); good != test.good {
				t.Errorf("good is %v, want %v", good, test.good)
			}
			if out.String() != test.want {
				t.Errorf("got:\n%s\nwant:\n%s", out.String(), test.want)
			}
		})
	}
}

func TestReportOnABrokenStream(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	if err := newReport(t.Output()).read(iotest.ErrReader(broken)); !errors.Is(err, broken) {
		t.Errorf("got %v, want it to wrap %v", err, broken)
	}
}

// TestLast has a test that prints a lot.
func TestLast(t *testing.T) {
	t.Parallel()
	run := packageRun{output: []output{{test: "TestB", text: "another\n"}}}
	for i := range repeated + 2 {
		run.add(event{Action: "output", Test: "TestA", Output: strings.Repeat(".", i) + "\n"})
	}
	if got := run.last("TestA"); len(got) != repeated || got[0] != "..\n" {
		t.Errorf("%d lines, the first one is %q", len(got), got[0])
	}
}
