// SPDX-License-Identifier: Apache-2.0

//go:build !js

package conflist_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist"
)

// The tests of this file call libcni, the runtimes' own code, which does not build for js.

// TestLibcniRunsWhatInsertMakes checks that a runtime sees the same network with one more plugin.
func TestLibcniRunsWhatInsertMakes(t *testing.T) {
	t.Parallel()
	for _, file := range corpus(t) {
		before := readFile(t, file)
		inserted, err := conflist.Insert(before, mesh())
		if err != nil {
			t.Fatal(err)
		}
		if inserted.Lifted {
			wantSameChain(t, before, inserted.Out)
		} else {
			wantLoaded(t, before, inserted.Out)
		}
	}
}

// TestLibcniRunsLiftedAsSingle does the same for single configurations of all kinds and versions.
func TestLibcniRunsLiftedAsSingle(t *testing.T) {
	t.Parallel()
	docs := []string{`{"name":"n","type":"a","cniVersion":"0.1.0"}`, `{"name":"n","type":"a","cniVersion":""}`}
	for _, tc := range liftCases() {
		docs = append(docs, tc.doc)
	}
	for _, doc := range docs {
		lifted, err := conflist.Insert([]byte(doc), mesh())
		if err != nil {
			t.Fatal(err)
		}
		wantSameChain(t, []byte(doc), lifted.Out)
	}
}

// wantLoaded checks that libcni loads after, if it loads before, with one more plugin.
func wantLoaded(t *testing.T, before, after []byte) {
	t.Helper()
	a, err := libcni.NetworkConfFromBytes(before)
	if err != nil {
		t.Logf("libcni does not load the original: %v", err)
		return
	}
	b, err := libcni.NetworkConfFromBytes(after)
	if err != nil {
		t.Fatalf("libcni loads the original and not what Insert made of it: %v", err)
	}
	if a.Name != b.Name || a.CNIVersion != b.CNIVersion || a.DisableCheck != b.DisableCheck || a.DisableGC != b.DisableGC {
		t.Errorf("libcni sees another network: %+v, before %+v", b, a)
	}
	want := append(types(a), "istio-cni")
	if diff := cmp.Diff(want, types(b)); diff != "" {
		t.Errorf("plugins seen by libcni (-want +got):\n%s", diff)
	}
}

// wantSameChain checks that libcni runs the lifted list like the single one, followed by ours.
func wantSameChain(t *testing.T, single, lifted []byte) {
	t.Helper()
	want, err := loadSingle(single)
	if err != nil {
		t.Fatal(err)
	}
	got, err := libcni.NetworkConfFromBytes(lifted)
	if err != nil {
		t.Fatalf("libcni does not load what Insert made: %v", err)
	}
	if got.Name != want.Name || got.CNIVersion != want.CNIVersion || len(got.Plugins) != 2 {
		t.Fatalf("libcni sees network %q, version %q, %d plugins; want %q, %q, 2",
			got.Name, got.CNIVersion, len(got.Plugins), want.Name, want.CNIVersion)
	}
	if diff := cmp.Diff(string(want.Plugins[0].Bytes), string(got.Plugins[0].Bytes)); diff != "" {
		t.Errorf("the first plugin gets another configuration (-single +lifted):\n%s", diff)
	}
}

func types(l *libcni.NetworkConfigList) []string {
	var all []string
	for _, p := range l.Plugins {
		all = append(all, p.Network.Type)
	}
	return all
}

// TestPrimaryOfCorpus checks every document of the corpus, alone in its directory, against libcni.
func TestPrimaryOfCorpus(t *testing.T) {
	t.Parallel()
	for _, file := range corpus(t) {
		wantVerdictOfLibcni(t, t.TempDir(), filepath.Base(file), string(readFile(t, file)))
	}
}

// TestPrimaryAgainstLibcni compares, file by file, what Primary finds valid with what libcni loads.
func TestPrimaryAgainstLibcni(t *testing.T) {
	t.Parallel()
	root := dropins(t)
	for _, doc := range runtimeDocuments() {
		for _, file := range []string{"x.conflist", "x.conf"} {
			wantVerdictOfLibcni(t, root, file, doc)
		}
	}
}

// dropins creates a directory with a drop-in directory for the network "net", and one that no
// runtime loads for the network "bad".
func dropins(t testing.TB) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.CopyFS(root, directory("net/a.conf", aSingle, "bad/a.conf", "{}")); err != nil {
		t.Fatal(err)
	}
	return root
}

// wantVerdictOfLibcni checks that Primary accepts a document if and only if libcni does.
func wantVerdictOfLibcni(t *testing.T, root, file, doc string) {
	t.Helper()
	name := filepath.Join(root, file)
	if err := os.WriteFile(name, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(name)
	_, err := conflist.Primary(os.DirFS(root))
	if err != nil && !errors.Is(err, conflist.ErrNoPrimary) {
		t.Fatalf("%s with %s: %v", file, doc, err)
	}
	if loaded := loads(t, name); loaded != (err == nil) {
		t.Errorf("%s with %s: Primary says %v, libcni loads it: %v", file, doc, err, loaded)
	}
}

// loads reports whether libcni, called as containerd and CRI-O call it, loads a file.
func loads(t *testing.T, name string) bool {
	t.Helper()
	if filepath.Ext(name) == ".conflist" {
		_, err := libcni.NetworkConfFromFile(name)
		return err == nil
	}
	list, err := loadSingle(readFile(t, name))
	return err == nil && len(list.Plugins) > 0
}

// loadSingle loads a single configuration as the list that runtimes make of it. The functions are
// deprecated, as is this kind of file.
func loadSingle(doc []byte) (*libcni.NetworkConfigList, error) {
	conf, err := libcni.ConfFromBytes(doc) //nolint:staticcheck // what runtimes call
	if err != nil {
		return nil, err
	}
	return libcni.ConfListFromConf(conf) //nolint:staticcheck // what runtimes call
}

// runtimeDocuments returns edge cases of what libcni loads.
func runtimeDocuments() []string {
	plugins := `"plugins":[{"type":"a"}]`
	docs := []string{
		aList, aSingle, `null`, `[]`, `"x"`, `{}`, `{"name":"net"}`, `{"name":"bad"}`, `{"name":"none"}`, `{"name":""}`,
		`{"name":1,` + plugins + `}`, `{"Name":"n",` + plugins + `}`, `{"name":"a","name":"net"}`, `{"name":"bad",` + plugins + `}`,
		`{"name":"n","plugins":null}`, `{"name":"n","plugins":{}}`, `{"name":"n","plugins":[1]}`, `{"name":"n","plugins":[null]}`,
		`{"name":"n","plugins":[{"Type":"a"}]}`, `{"name":"n","plugins":[{"Type":"a","type":""}]}`, `{"name":"n","plugins":[{"Type":"","type":"a"}]}`,
		`{"name":"n","plugins":[],"plugins":[{"type":"a"}]}`, `{"name":"n","plugins":[{"type":"a"}],"plugins":[]}`,
		`{"name":"n","type":"a",` + plugins + `}`, `{"name":"n","Type":"a"}`, `{"name":"n","TYPE":"a","type":""}`, `{"name":"n","type":"a","Type":""}`,
		`{"name":"n","type":1}`, `{"name":1,"type":"a"}`, `{"type":"a"}`, `{"type":"a","cniVersion":1}`, `{"type":"a","ipam":[]}`, `{"type":"a","ipam":null}`,
		`{"type":"a","x":1e400}`, `{"name":"n","x":1e400,` + plugins + `}`, "\ufeff" + aList, aList + "x", aList + " ", "{\"name\":\"\xff\"," + plugins + `}`,
	}
	for _, member := range []string{
		`"cniVersion":"1.0.0"`, `"cniVersion":1`, `"cniVersion":null`, `"cniVersion":"x"`, `"cniVersions":null`, `"cniVersions":[]`, `"cniVersions":["1.0.0"]`,
		`"cniVersions":[1]`, `"cniVersions":["x"]`, `"cniVersions":["1.0.0.0"]`, `"cniVersions":[""]`, `"cniVersions":["1"]`, `"cniVersions":["+1.-2"]`,
		`"cniVersion":"x","cniVersions":[]`, `"cniVersion":"","cniVersions":["9.9.9"]`, `"disableCheck":"TRUE"`, `"disableCheck":"yes"`, `"disableGC":null`,
		`"disableGC":1`, `"loadOnlyInlinedPlugins":true`, `"loadOnlyInlinedPlugins":"False"`,
	} {
		docs = append(docs, `{"name":"n",`+member+`,`+plugins+`}`, `{"name":"net",`+member+`}`, `{"name":"bad",`+member+`,`+plugins+`}`)
	}
	for _, member := range []string{
		`"capabilities":{"x":1}`, `"capabilities":{"x":true}`, `"capabilities":[]`, `"ipam":1`, `"ipam":{"type":1}`, `"dns":{"nameservers":"x"}`,
		`"dns":{"domain":1}`, `"dns":{"search":[1]}`, `"dns":{"options":null}`, `"dns":[]`, `"prevResult":[]`, `"prevResult":{}`, `"name":1`, `"cniVersion":{}`,
		`"cni.dev/valid-attachments":[{"ifname":1}]`, `"cni.dev/valid-attachments":{}`, `"IPAM":1`, `"ipam":{"TYPE":1}`, `"x":[1e400]`,
	} {
		docs = append(docs, `{"name":"n","plugins":[{"type":"a",`+member+`}]}`, `{"name":"n","type":"a",`+member+`}`)
	}
	return docs
}

func FuzzPrimary(f *testing.F) {
	for _, doc := range runtimeDocuments() {
		f.Add(doc, true)
		f.Add(doc, false)
	}
	root := dropins(f)
	f.Fuzz(func(t *testing.T, doc string, isList bool) {
		file := "x.conf"
		if isList {
			file = "x.conflist"
		}
		var list map[string]any
		_ = json.Unmarshal([]byte(doc), &list) // what is not a list has no name
		if name, _ := list["name"].(string); len(name) > 255 || strings.ContainsAny(name, "./\x00") {
			t.Skip("a name that leads to another directory, or cannot lead to one, is judged otherwise on purpose")
		}
		wantVerdictOfLibcni(t, root, file, doc)
	})
}
