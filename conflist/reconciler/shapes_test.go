// SPDX-License-Identifier: Apache-2.0

package reconciler_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// shape is a directory as found on nodes.
type shape struct {
	// files are pairs of path and content. A path that ends in / is a directory; a content that
	// begins with "->" is a link's target, in which @ is the directory's path; the content "|" is a
	// pipe.
	files []string
	// not are the modes in which the plugin cannot be installed here.
	not string
	// lasting means that uninstalling changes the directory, which had an entry before.
	lasting bool
	// restyled means that a restored entry looks different from a new one, because of the odd
	// layout of its neighbours.
	restyled bool
}

const (
	calicoList = `{
  "name": "k8s-pod-network",
  "cniVersion": "0.3.1",
  "plugins": [
    {"type": "calico", "mtu": 9007199254740993, "policy": {"type": "k8s"}, "kubernetes": {"kubeconfig": "/etc/cni/net.d/calico-kubeconfig"}},
    {"type": "portmap", "snat": true, "capabilities": {"portMappings": true}},
    {"type": "bandwidth", "capabilities": {"bandwidth": true}}
  ]
}`
	bridgeSingle = "{\n\t\"name\": \"rkt.kubernetes.io\",\r\n\t\"type\": \"bridge\",\n\t\"cniVersion\": \"1.0.0\",\n\t\"ipam\": {\"type\": \"host-local\"}\n}"
	oneOfOurs    = `{"type": "mesh-cni", "log": "debug", "made_by": "another installer"}`
)

// shapes returns directories with more, fewer or other things in them than one good file; those are
// in ../testdata/before.
func shapes() map[string]shape {
	const noneOfThem = "splice owned dropin"
	return map[string]shape{
		"containerd":          {files: []string{"10-containerd-net.conflist", `{"cniVersion":"1.0.0","name":"containerd-net","plugins":[{"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":true,"promiscMode":true,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.88.0.0/16"}],[{"subnet":"2001:4860:4860::/64"}]],"routes":[{"dst":"0.0.0.0/0"},{"dst":"::/0"}]}},{"type":"portmap","capabilities":{"portMappings":true}}]}` + "\n"}},
		"cri-o":               {files: []string{"11-crio-ipv4-bridge.conflist", "{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"crio\",\n  \"plugins\": [\n    {\n      \"type\": \"bridge\"\n    }\n  ]\n}\n", "200-loopback.conflist", `{"cniVersion": "1.0.0", "name": "loopback", "plugins": [{"type": "loopback"}]}`}},
		"podman":              {files: []string{"87-podman-bridge.conflist", `{"cniVersion": "0.4.0", "name": "podman", "plugins": [{"type": "bridge", "bridge": "cni-podman0"}, {"type": "portmap"}, {"type": "firewall"}, {"type": "tuning"}]}`}},
		"azure":               {files: []string{"10-azure.conflist", "{\n   \"cniVersion\":\"0.3.0\",\n   \"name\":\"azure\",\n   \"plugins\":[\n      {\n         \"type\":\"azure-vnet\",\n         \"mode\":\"transparent\",\n         \"ipsToRouteViaHost\":[\"169.254.20.10\"],\n         \"ipam\":{\n            \"type\":\"azure-vnet-ipam\"\n         }\n      },\n      {\n         \"type\":\"portmap\",\n         \"capabilities\":{\n            \"portMappings\":true\n         },\n         \"snat\":true\n      }\n   ]\n}\n"}},
		"gke":                 {files: []string{"10-gke-ptp.conflist", `{"cniVersion":"0.3.1","name":"gke-pod-network","plugins":[{"type":"ptp","mtu":1460,"ipam":{"type":"host-local","ranges":[[{"subnet":"10.4.1.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},{"type":"portmap","capabilities":{"portMappings":true}}]}`}},
		"canal":               {files: []string{"10-canal.conflist", strings.ReplaceAll(calicoList, "\n", "\r\n"), "calico-kubeconfig", "apiVersion: v1\n"}},
		"kube-router":         {files: []string{"10-kuberouter.conflist", `{"cniVersion":"0.3.0","name":"mynet","plugins":[{"bridge":"kube-bridge","ipam":{"type":"host-local"},"isDefaultGateway":true,"name":"kubernetes","type":"bridge"}]}`}},
		"kube-router, old":    {files: []string{"10-kuberouter.conf", `{"name":"kubernetes","type":"bridge","bridge":"kube-bridge","isDefaultGateway":true,"ipam":{"type":"host-local"}}`}, not: "dropin"},
		"antrea":              {files: []string{"10-antrea.conflist", "{\n    \"cniVersion\":\"1.0.0\",\n    \"name\": \"antrea\",\n    \"plugins\": [\n        {\n            \"type\": \"antrea\",\n            \"ipam\": {\n                \"type\": \"host-local\"\n            }\n        }\n        ,\n        {\n            \"type\": \"portmap\"\n        }\n    ]\n}\n"}},
		"multus first":        {files: []string{"00-multus.conf", `{"cniVersion":"0.3.1","name":"multus-cni-network","type":"multus","kubeconfig":"/etc/cni/net.d/multus.d/multus.kubeconfig","delegates":[{"name":"k8s-pod-network","cniVersion":"0.3.1","plugins":[{"type":"calico"}]}]}`, "10-calico.conflist", calicoList, "multus.d/", "", "multus.d/multus.kubeconfig", "secret"}, not: "dropin"},
		"cilium":              {files: []string{"05-cilium.conflist", "\n{\n  \"cniVersion\": \"0.3.1\",\n  \"name\": \"cilium\",\n  \"plugins\": [\n    {\n       \"type\": \"cilium-cni\",\n       \"enable-debug\": false,\n       \"log-file\": \"/var/run/cilium/cilium-cni.log\"\n    }\n  ]\n}\n", "10-kindnet.conflist.cilium_bak", calicoList}},
		"cilium, old":         {files: []string{"05-cilium.conf", "{\n  \"cniVersion\": \"0.3.1\",\n  \"name\": \"cilium\",\n  \"type\": \"cilium-cni\",\n  \"enable-debug\": false\n}\n"}, not: "dropin"},
		"linkerd is there":    {files: []string{"10-calico.conflist", strings.Replace(calicoList, "\n  ]", ",\n    {\"type\": \"linkerd-cni\", \"linkerd\": {\"proxy-uid\": 2102}}\n  ]", 1), "ZZZ-linkerd-cni-kubeconfig", "secret"}},
		"CNI 1.1":             {files: []string{"10-net.conflist", `{"cniVersion":"1.1.0","cniVersions":["0.4.0","1.0.0","1.1.0"],"name":"net","disableGC":true,"plugins":[{"type":"ptp"}]}`}},
		"only inlined":        {files: []string{"10-net.conflist", `{"cniVersion":"1.1.0","name":"net","loadOnlyInlinedPlugins":true,"plugins":[{"type":"ptp"}]}`}, not: "dropin"},
		"drop-ins only":       {files: []string{"10-net.conflist", `{"cniVersion":"1.1.0","name":"net"}`, "net/", "", "net/10-ptp.conf", `{"type":"ptp"}`}, not: "splice owned"},
		"drop-ins, no plugin": {files: []string{"10-net.conflist", `{"cniVersion":"1.1.0","name":"net","plugins":[]}`, "net/", "", "net/10-ptp.conf", `{"type":"ptp"}`}, not: noneOfThem},
		"drop-ins sort last":  {files: []string{"10-net.conflist", `{"cniVersion":"1.1.0","name":"net"}`, "net/", "", "net/ptp.conf", `{"type":"ptp"}`}, not: "splice owned dropin"},
		"drop-ins of others":  {files: []string{"10-net.conflist", `{"cniVersion":"1.1.0","name":"net","plugins":[{"type":"ptp"}]}`, "net/", "", "net/10-tuning.conf", `{"type":"tuning"}`, "net/README", "x"}},
		"two networks":        {files: []string{"10-a.conflist", strings.Replace(calicoList, "k8s-pod-network", "a", 1), "20-b.conflist", calicoList}},
		"two of one stem":     {files: []string{"10-a.conf", bridgeSingle, "10-a.conflist", calicoList}, not: "splice dropin"},
		"json":                {files: []string{"10-bridge.json", bridgeSingle}, not: "dropin"},
		"blanks around":       {files: []string{"10-net.conflist", "\n\n \t" + calicoList + "\n\n\n"}},
		"empty object":        {files: []string{"10-net.conflist", "{}"}, not: noneOfThem},
		"empty list":          {files: []string{"10-net.conflist", `{"name":"n","plugins":[]}`}, not: noneOfThem},
		"nothing":             {not: noneOfThem},
		"no configuration":    {files: []string{"README", "see elsewhere", "calico-kubeconfig", "x"}, not: noneOfThem},
		"garbage first":       {files: []string{"05-x.conf", "#!/bin/sh\n", "10-calico.conflist", calicoList}},
		"zero bytes first":    {files: []string{"05-x.conflist", "", "10-calico.conflist", calicoList}},
		"cut short":           {files: []string{"10-calico.conflist", calicoList[:200]}, not: noneOfThem},
		"cut short, first":    {files: []string{"05-x.conflist", calicoList[:200], "10-calico.conflist", calicoList}},
		"byte order mark":     {files: []string{"10-calico.conflist", "\ufeff" + calicoList}, not: noneOfThem},
		"comments":            {files: []string{"10-calico.conflist", "// Calico\n" + calicoList}, not: noneOfThem},
		"ambiguous keys":      {files: []string{"10-net.conflist", `{"name":"n","plugins":[{"type":"a","Type":"b"}]}`}, not: "splice owned"},
		"twice a key":         {files: []string{"10-net.conflist", `{"name":"a","name":"b","plugins":[{"type":"a"}]}`}, not: "splice owned"},
		"ours is there":       {files: []string{"10-net.conflist", `{"name":"n","plugins":[{"type":"a"},` + oneOfOurs + `]}`}, lasting: true},
		"ours is first":       {files: []string{"10-net.conflist", `{"name":"n","plugins":[` + oneOfOurs + `,{"type":"a"},{"type":"b"}]}`}, lasting: true},
		"ours is there twice": {files: []string{"10-net.conflist", `{"name":"n","plugins":[` + oneOfOurs + `,{"type":"a"},` + oneOfOurs + `]}`}, lasting: true},
		"odd network name":    {files: []string{"10-net.conflist", `{"name":"../outside","plugins":[{"type":"a"}]}`}, not: "dropin"},
		"no version":          {files: []string{"10-net.conflist", `{"name":"n","plugins":[{"type":"a"}]}`}},
		"single, no name":     {files: []string{"10-net.conf", `{"type":"bridge"}`}, not: noneOfThem},
		"single, version 0":   {files: []string{"10-net.conf", `{"cniVersion":"0.1.0","name":"n","type":"bridge","bridge":"<&>\u003c"}`}, not: "dropin"},
		"link within":         {files: []string{"10-net.conflist", "->net.json.real", "net.json.real", calicoList}},
		"link below":          {files: []string{"10-net.conflist", "->real/deep/net", "real/", "", "real/deep/", "", "real/deep/net", calicoList}},
		"link, absolute":      {files: []string{"10-net.conflist", "->@/real/net", "real/", "", "real/net", calicoList}},
		"links in a chain":    {files: []string{"10-net.conflist", "->..data/net", "..data", "->..v1", "..v1/", "", "..v1/net", "->real", "..v1/real", calicoList}},
		"links to one":        {files: []string{"10-a.conflist", "->real", "20-b.conflist", "->real", "real", calicoList}},
		"link to the next":    {files: []string{"10-a.conflist", "->20-b.conflist", "20-b.conflist", calicoList}},
		"link to a single":    {files: []string{"10-net.conf", "->real", "real", bridgeSingle}, not: "splice dropin"},
		"link, ours is there": {files: []string{"10-net.conflist", "->real", "real", `{"name":"n","plugins":[{"type":"a"},` + oneOfOurs + `]}`}, lasting: true},
		"link as a drop-in":   {files: []string{"10-net.conflist", `{"cniVersion":"1.1.0","name":"net"}`, "net/", "", "net/10-ptp.conf", "->../real", "real", `{"type":"ptp"}`}, not: "splice owned"},
		"link outside":        {files: []string{"10-net.conflist", "->/etc/hostname"}, not: noneOfThem + " standalone?"},
		"link outside, by ..": {files: []string{"10-net.conflist", "->../net.d/net.json.real", "net.json.real", calicoList}, not: noneOfThem},
		"link outside, first": {files: []string{"10-net.conflist", "->/etc/hostname", "20-calico.conflist", calicoList}, not: noneOfThem},
		"link to nowhere":     {files: []string{"10-net.conflist", "->missing", "20-calico.conflist", calicoList}},
		"only to nowhere":     {files: []string{"10-net.conflist", "->missing"}, not: noneOfThem},
		"link in a circle":    {files: []string{"10-net.conflist", "->11-net.conflist", "11-net.conflist", "->10-net.conflist", "20-calico.conflist", calicoList}},
		"link to a directory": {files: []string{"10-net.conflist", "->real", "real/", "", "20-calico.conflist", calicoList}},
		"link to the whole":   {files: []string{"10-net.conflist", "->.", "20-calico.conflist", calicoList}},
		"link to a pipe":      {files: []string{"10-net.conflist", "->pipe", "pipe", "|", "20-calico.conflist", calicoList}},
		"link to half of one": {files: []string{"10-net.conflist", "->real", "real", calicoList[:200], "20-calico.conflist", calicoList}},
		"directory":           {files: []string{"05-x.conflist/", "", "10-calico.conflist", calicoList}},
		"pipe":                {files: []string{"05-x.conflist", "|", "10-calico.conflist", calicoList}},
		"hidden":              {files: []string{".10-net.conflist", calicoList}, not: "owned"},
		"late in the order":   {files: []string{"zz-net.conflist", calicoList}},
		"before ours":         {files: []string{"00-a.conflist", calicoList}, not: "owned"},
		"large":               {files: []string{"10-net.conflist", `{"name":"n","plugins":[{"type":"a","routes":[` + strings.Repeat(`{"dst":"10.0.0.0/8"},`, 1500) + `{}]}]}`}},
		"deep":                {files: []string{"10-net.conflist", `{"name":"n","plugins":[{"type":"a","x":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}]}`}},
		"temporary files":     {files: []string{"10-calico.conflist", calicoList, "10-calico.conflist.tmp.12", "x", "10-calico.conflist~", "x"}},
		"network is a file":   {files: []string{"10-net.conflist", `{"name":"n","loadOnlyInlinedPlugins":true,"plugins":[{"type":"a"}]}`, "n", "x"}, not: "dropin"},
	}
}

func (s shape) lay(t testing.TB, directory string) {
	t.Helper()
	for i := 0; i+1 < len(s.files); i += 2 {
		file, content := filepath.Join(directory, s.files[i]), s.files[i+1]
		var err error
		switch target, link := strings.CutPrefix(content, "->"); {
		case link:
			err = os.Symlink(strings.Replace(target, "@", directory, 1), file)
		case content == "|":
			err = syscall.Mkfifo(file, 0o644)
		case strings.HasSuffix(s.files[i], "/"):
			err = os.Mkdir(file, 0o755)
		default:
			err = os.WriteFile(file, []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// corpus returns all shapes: those above, and one for each document of conflist's test data.
func corpus(t testing.TB) map[string]shape {
	t.Helper()
	all := shapes()
	documents, err := filepath.Glob("../testdata/before/*")
	if err != nil || len(documents) == 0 {
		t.Fatalf("no documents: %v", err)
	}
	for _, document := range documents {
		content, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		s := shape{files: []string{"10-" + filepath.Base(document), string(content)}}
		if filepath.Ext(document) == ".conf" || strings.Contains(string(content), "loadOnlyInlinedPlugins") {
			s.not = "dropin"
		}
		if strings.HasPrefix(filepath.Base(document), "number-beyond") { // no runtime loads it
			s.not = "splice owned dropin"
		}
		s.restyled = strings.HasPrefix(filepath.Base(document), "comma-first")
		all[filepath.Base(document)] = s
	}
	return all
}

// dump returns a directory byte for byte: kinds, permission bits, contents, targets of links.
func dump(t testing.TB, directory string) map[string]string {
	t.Helper()
	shown := map[string]string{}
	err := filepath.WalkDir(directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || path == directory {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		content := ""
		switch {
		case info.Mode().IsRegular():
			var data []byte
			data, err = os.ReadFile(path)
			content = string(data)
		case info.Mode()&os.ModeSymlink != 0:
			content, err = os.Readlink(path)
		}
		name, _ := filepath.Rel(directory, path)
		shown[name] = fmt.Sprintf("%v %s", info.Mode(), content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return shown
}
