// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"errors"
	"testing"
)

func TestNodeState(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]NodeState{
		`{"ztunnelReady":true,"redirectMode":"iptables"}`:               {ProxyReady: true, Mode: NodeModeRules},
		`{"ztunnelReady":false,"redirectMode":"ebpf"}`:                  {Mode: NodeModeEBPF},
		`{"ztunnelReady":true,"redirectMode":"ebpf","something":"new"}`: {ProxyReady: true, Mode: NodeModeEBPF},
	} {
		state, err := ParseNodeState([]byte(text))
		if err != nil || state != want {
			t.Errorf("%s: %v, %v, want %v", text, state, err, want)
		}
		file, err := want.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := ParseNodeState(file); err != nil || again != want {
			t.Errorf("%v is written as %s and read as %v, %v", want, file, again, err)
		}
	}
	file, err := NodeState{ProxyReady: true, Mode: NodeModeRules}.Bytes()
	if want := `{"ztunnelReady":true,"redirectMode":"iptables"}`; err != nil || string(file) != want {
		t.Errorf("%s, %v, want %s", file, err, want)
	}
	for _, text := range []string{"", "{", "[]", `{"ztunnelReady":true}`, `{"redirectMode":"bpf"}`, `{"ztunnelReady":"yes","redirectMode":"ebpf"}`} {
		if state, err := ParseNodeState([]byte(text)); !errors.Is(err, ErrNodeState) || state != (NodeState{}) {
			t.Errorf("%q: %v, %v, want ErrNodeState", text, state, err)
		}
	}
	if file, err := (NodeState{}).Bytes(); !errors.Is(err, ErrNodeState) || file != nil {
		t.Errorf("the zero value: %s, %v, want ErrNodeState", file, err)
	}
}
