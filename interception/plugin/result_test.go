// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"
	cniversion "github.com/containernetworking/cni/pkg/version"
	"github.com/google/go-cmp/cmp"
)

// results are one result in the words of three versions, each with fields that no version knows, at
// every level.
const (
	result020 = `{"cniVersion": "0.2.0", "ip4": {"ip": "10.1.2.3/24", "gateway": "10.1.2.1", "routes": [{"dst": "0.0.0.0/0"}], "pool": "a<b"},
		"dns": {"nameservers": ["10.0.0.10"]}, "vendor": {"id": 12345678901234567890}}`
	result040 = `{"cniVersion": "0.4.0", "interfaces": [{"name": "veth1"}, {"name": "eth0", "mac": "00:11:22:33:44:55", "sandbox": "/ns", "vf": 3}],
		"ips": [{"version": "4", "interface": 1, "address": "10.1.2.3/24", "gateway": "10.1.2.1", "pool": "a<b"},
			{"version": "6", "interface": 1, "address": "fd00::3/64"}],
		"routes": [{"dst": "0.0.0.0/0"}], "dns": {"nameservers": ["10.0.0.10"]}, "vendor": {"id": 12345678901234567890}}`
	result110 = `{"cniVersion": "1.1.0", "interfaces": [{"name": "veth1"},
			{"name": "eth0", "mac": "00:11:22:33:44:55", "sandbox": "/ns", "mtu": 1450, "vf": 3}],
		"ips": [{"interface": 1, "address": "10.1.2.3/24", "gateway": "10.1.2.1", "pool": "a<b"}, {"interface": 1, "address": "fd00::3/64"}],
		"routes": [{"dst": "0.0.0.0/0", "table": 100}], "dns": {"nameservers": ["10.0.0.10"]}, "vendor": {"id": 12345678901234567890}}`
)

func TestPassThroughOfTheSameVersionChangesNoByte(t *testing.T) {
	t.Parallel()
	for _, v := range cniversion.All.SupportedVersions() {
		raw := resultOf(v)
		got, err := passThrough(json.RawMessage(raw), v)
		if err != nil || string(got) != raw {
			t.Errorf("%s: got %s, %v", v, got, err)
		}
	}
}

// resultOf is the result of that version.
func resultOf(v string) string {
	return strings.NewReplacer("0.2.0", v, "0.4.0", v, "1.1.0", v).Replace(resultLike(v))
}

// resultLike is a result in the words of a version.
func resultLike(v string) string {
	switch v {
	case "0.1.0", "0.2.0":
		return result020
	case "0.3.0", "0.3.1", "0.4.0":
		return result040
	default:
		return result110
	}
}

func TestPassThroughOfEveryVersionToEveryOther(t *testing.T) {
	t.Parallel()
	for _, from := range cniversion.All.SupportedVersions() {
		for _, to := range cniversion.All.SupportedVersions() {
			raw := resultOf(from)
			got, err := passThrough(json.RawMessage(raw), to)
			if err != nil {
				t.Errorf("%s to %s: %v", from, to, err)
				continue
			}
			result, err := create.CreateFromBytes(got)
			if err != nil || result.Version() != to {
				t.Errorf("%s to %s: got %s, %v", from, to, got, err)
			}
			wants := []string{"10.1.2.3/24", `"vendor":{"id":12345678901234567890}`}
			if hasIPs(from) == hasIPs(to) {
				wants = append(wants, `"pool":"a<b"`)
			}
			for _, want := range wants {
				if !strings.Contains(strings.ReplaceAll(string(got), ": ", ":"), want) {
					t.Errorf("%s to %s: %s is not in %s", from, to, want, got)
				}
			}
		}
	}
}

// hasIPs tells versions with a list of addresses from those with one of each family.
func hasIPs(v string) bool { return v != "0.1.0" && v != "0.2.0" }

func TestPassThroughConvertsInPlace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, raw, version, want string }{
		{"nothing", "", "0.3.1", `{"cniVersion": "0.3.1"}`},
		{"null", "null", "1.1.0", `{"cniVersion": "1.1.0"}`},
		{"without version", `{"ips": [{"address": "10.1.2.3/24"}], "x": 1}`, "1.0.0", `{"cniVersion": "1.0.0", "ips": [{"address": "10.1.2.3/24"}], "x": 1}`},
		{
			"up", result040, "1.0.0", `{"cniVersion": "1.0.0",
				"interfaces": [{"name": "veth1"}, {"name": "eth0", "mac": "00:11:22:33:44:55", "sandbox": "/ns", "vf": 3}],
				"ips": [{"interface": 1, "address": "10.1.2.3/24", "gateway": "10.1.2.1", "pool": "a<b"}, {"interface": 1, "address": "fd00::3/64"}],
				"routes": [{"dst": "0.0.0.0/0"}], "dns": {"nameservers": ["10.0.0.10"]}, "vendor": {"id": 12345678901234567890}}`,
		},
		{
			"down", result110, "0.3.1", `{"cniVersion": "0.3.1",
				"interfaces": [{"name": "veth1"}, {"name": "eth0", "mac": "00:11:22:33:44:55", "sandbox": "/ns", "vf": 3}],
				"ips": [{"version": "4", "interface": 1, "address": "10.1.2.3/24", "gateway": "10.1.2.1", "pool": "a<b"},
					{"version": "6", "interface": 1, "address": "fd00::3/64"}],
				"routes": [{"dst": "0.0.0.0/0", "table": 100}], "dns": {"nameservers": ["10.0.0.10"]}, "vendor": {"id": 12345678901234567890}}`,
		},
		{
			"to before there were lists", result040, "0.2.0", `{"cniVersion": "0.2.0", "ip4": {"ip": "10.1.2.3/24", "gateway": "10.1.2.1",
				"routes": [{"dst": "0.0.0.0/0"}]}, "ip6": {"ip": "fd00::3/64"}, "dns": {"nameservers": ["10.0.0.10"]},
				"vendor": {"id": 12345678901234567890}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := passThrough(json.RawMessage(test.raw), test.version)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tree(t, []byte(test.want)), tree(t, got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// tree decodes JSON with its numbers as they are written.
func tree(t *testing.T, data []byte) any {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		t.Fatal(err)
	}
	return value
}

func TestPassThroughRefuses(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"[]", `"text"`, "{", `{"cniVersion": 1}`, `{"cniVersion": "9.9.9"}`, `{"cniVersion": "1.0.0", "ips": [{"address": "ten"}]}`,
		`{"cniVersion": "0.4.0", "interfaces": {}}`, `{"cniVersion": "0.4.0", "routes": [{"gw": "10.1.2.1"}]}`,
	} {
		if got, err := passThrough(json.RawMessage(raw), "1.0.0"); err == nil {
			t.Errorf("%s: got %s", raw, got)
		}
	}
}

// FuzzPassThrough holds for every result that is accepted: it is accepted again as what came out,
// and then nothing changes any more.
func FuzzPassThrough(f *testing.F) {
	for _, v := range cniversion.All.SupportedVersions() {
		f.Add(resultOf(v), "1.0.0")
		f.Add(resultOf(v), "0.3.1")
		f.Add(resultOf(v), "0.2.0")
	}
	f.Fuzz(func(t *testing.T, raw, to string) {
		if json.Unmarshal([]byte(raw), new(json.RawMessage)) != nil {
			return // a runtime's configuration is JSON, or was refused before
		}
		first, err := passThrough(json.RawMessage(raw), to)
		if err != nil {
			return
		}
		second, err := passThrough(first, to)
		if err != nil || string(second) != string(first) {
			t.Errorf("%s to %s gives\n%s, and that again\n%s (%v)", raw, to, first, second, err)
		}
	})
}
