// SPDX-License-Identifier: Apache-2.0

//go:build !js

package conflist_test

import (
	"testing"

	"github.com/containernetworking/cni/libcni"
	"github.com/google/go-cmp/cmp"

	"github.com/meshcni/meshcni/conflist"
)

func TestLoadNetworkAgainstLibcni(t *testing.T) {
	t.Parallel()
	docs := runtimeDocuments()
	for _, file := range corpus(t) {
		docs = append(docs, string(readFile(t, file)))
	}
	for _, versions := range []string{
		`"1.1.0"`, `"1.0.0","1.1.0"`, `"9.9.9"`, `"1.0.0","9.9.9"`, `"0.4.0","0.3.1"`, `"1.1"`, ``,
	} {
		docs = append(docs, `{"name":"n","cniVersions":[`+versions+`],"plugins":[{"type":"a"}]}`,
			`{"name":"n","cniVersion":"1.0.0","cniVersions":[`+versions+`],"plugins":[{"type":"a"}]}`,
			`{"name":"n","cniVersion":"2.0.0","cniVersions":[`+versions+`],"plugins":[{"type":"a"}]}`)
	}
	for _, doc := range docs {
		got, err := conflist.LoadNetwork([]byte(doc), true)
		want, libcniErr := libcni.NetworkConfFromBytes([]byte(doc))
		if (err == nil) != (libcniErr == nil) {
			t.Errorf("%s: error %v, libcni's %v", doc, err, libcniErr)
		}
		if err == nil && libcniErr == nil {
			loaded := conflist.Network{Name: want.Name, CNIVersion: want.CNIVersion, Types: types(want), OnlyInlined: want.LoadOnlyInlinedPlugins}
			if diff := cmp.Diff(loaded, got); diff != "" {
				t.Errorf("%s (-libcni +got):\n%s", doc, diff)
			}
		}
		got, err = conflist.LoadNetwork([]byte(doc), false)
		want, libcniErr = loadSingle([]byte(doc))
		if (err == nil) != (libcniErr == nil) {
			t.Errorf("%s: error %v, libcni's %v", doc, err, libcniErr)
		}
		if err == nil && libcniErr == nil && (got.Name != want.Name || got.CNIVersion != want.CNIVersion || !got.Single || got.DropIns()) {
			t.Errorf("%s = %+v, libcni's %+v", doc, got, want)
		}
	}
}

func TestDropIns(t *testing.T) {
	t.Parallel()
	for doc, want := range map[string]bool{
		`{"name":"n","plugins":[{"type":"a"}]}`: true,
		`{"name":"n"}`:                          true,
		`{"name":"n","plugins":[{"type":"a"}],"loadOnlyInlinedPlugins":true}`:    false,
		`{"name":"../n","plugins":[{"type":"a"}]}`:                               false,
		`{"name":"..","plugins":[{"type":"a"}]}`:                                 false,
		`{"name":"","plugins":[{"type":"a"}]}`:                                   false,
		`{"name":"n","plugins":[{"type":"a"}],"loadOnlyInlinedPlugins":"False"}`: true,
	} {
		n, err := conflist.LoadNetwork([]byte(doc), true)
		if err != nil || n.DropIns() != want {
			t.Errorf("%s: %v, %v; want %v", doc, n.DropIns(), err, want)
		}
	}
}
