// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestMemoryGroup finds the control group that counts memory, with either version and with both
// mounted.
func TestMemoryGroup(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0::/k8s.io/abc\n": "/sys/fs/cgroup/k8s.io/abc",
		"9:name=systemd:/x\n4:memory:/k8s.io/abc\n1:cpu:/y\n0::/z\n": "/sys/fs/cgroup/memory/k8s.io/abc",
		"0::/z\n4:cpu,memory:/k8s.io/a:b\n":                          "/sys/fs/cgroup/memory/k8s.io/a:b",
	} {
		if got, err := memoryGroup(text); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"", "1:cpu:/y\n", "memory\n"} {
		if got, err := memoryGroup(text); err == nil {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// TestReadMemory reads the files of both versions, with and without a limit, and names a file that
// it cannot read.
func TestReadMemory(t *testing.T) {
	t.Parallel()
	const oom = "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"
	for name, test := range map[string]struct {
		files map[string]string
		want  Memory
		fails string
	}{
		"version 1": {
			files: map[string]string{"memory.limit_in_bytes": "201326592\n", "memory.max_usage_in_bytes": "17444864\n", "memory.oom_control": oom},
			want:  Memory{Peak: 17444864, Limit: 201326592, Killed: 2},
		},
		"version 1 without a limit": {
			files: map[string]string{
				"memory.limit_in_bytes": "9223372036854771712\n", "memory.max_usage_in_bytes": "1\n", "memory.oom_control": "oom_kill 0\n",
			},
			want: Memory{Peak: 1},
		},
		"version 2": {
			files: map[string]string{
				"memory.max": "201326592\n", "memory.peak": "3\n", "memory.current": "2\n", "memory.events": "oom 1\noom_kill 1\noom_group_kill 0\n",
			},
			want: Memory{Peak: 3, Limit: 201326592, Killed: 1},
		},
		"version 2 without a limit and without a peak": {
			files: map[string]string{"memory.max": "max\n", "memory.current": "2\n", "memory.events": "oom_kill 0\n"},
			want:  Memory{Peak: 2},
		},
		"no number": {
			files: map[string]string{"memory.max": "many\n", "memory.peak": "3\n", "memory.events": "oom_kill 0\n"}, fails: "memory.max",
		},
		"no events": {files: map[string]string{"memory.max": "1\n", "memory.peak": "3\n", "memory.events": "oom 0\n"}, fails: "memory.events"},
		"ended":     {fails: "memory.max"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			directory := t.TempDir()
			for file, text := range test.files {
				if err := os.WriteFile(filepath.Join(directory, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := readMemory(directory)
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Errorf("%v, %v", got, err)
				}
				return
			}
			if err != nil || got != test.want {
				t.Errorf("%+v, %v; want %+v", got, err, test.want)
			}
		})
	}
}

// TestMemoryEnough accepts up to four fifths of the limit. It refuses a kill, and a missing limit
// or measurement.
func TestMemoryEnough(t *testing.T) {
	t.Parallel()
	for want, m := range map[string]Memory{
		"":                    {Peak: 80 << 20, Limit: 100 << 20},
		"never measured":      {Limit: 100 << 20},
		"has no memory limit": {Peak: 1},
		"killed 1 of its processes for want of memory: at most 20.0 MiB of 100 MiB": {Peak: 20 << 20, Limit: 100 << 20, Killed: 1},
		"more than 80 % of its memory limit: at most 80.5 MiB of 100 MiB":           {Peak: 80<<20 + 1<<19, Limit: 100 << 20},
	} {
		if err := m.Enough(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v; want %q", m, err, want)
		}
	}
	got := Memory{Peak: 3, Limit: 10}.Most(Memory{Peak: 2, Limit: 20, Killed: 1})
	if want := (Memory{Peak: 3, Limit: 20, Killed: 1}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
