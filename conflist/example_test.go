// SPDX-License-Identifier: Apache-2.0

package conflist_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing/fstest"

	"github.com/meshcni/meshcni/conflist"
)

func ExampleInsert() {
	doc := []byte(`{
  "cniVersion": "1.0.0",
  "name": "cluster-network",
  "plugins": [
    {
      "type": "bridge"
    }
  ]
}
`)
	entry := conflist.Plugin{Type: "istio-cni", Body: json.RawMessage(`{"type":"istio-cni","plugin_log_level":"info"}`)}
	edit, err := conflist.Insert(doc, entry)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("changed: %v\n%s", edit.Changed, edit.Out)

	again, err := conflist.Insert(edit.Out, entry)
	fmt.Printf("changed again: %v, %v\n", again.Changed, err)
	// Output:
	// changed: true
	// {
	//   "cniVersion": "1.0.0",
	//   "name": "cluster-network",
	//   "plugins": [
	//     {
	//       "type": "bridge"
	//     },
	//     {
	//       "type": "istio-cni",
	//       "plugin_log_level": "info"
	//     }
	//   ]
	// }
	// changed again: false, <nil>
}

// A single configuration becomes a list. The file must get a new name, because runtimes read lists
// from .conflist files only.
func ExampleInsert_lifted() {
	doc := []byte(`{"cniVersion":"0.4.0","name":"net","type":"bridge"}`)
	edit, err := conflist.Insert(doc, conflist.Plugin{Type: "istio-cni", Body: json.RawMessage(`{"type":"istio-cni"}`)})
	fmt.Printf("lifted: %v, %v\n%s\n", edit.Lifted, err, edit.Out)
	// Output:
	// lifted: true, <nil>
	// {"cniVersion":"0.4.0","name":"net","plugins":[{"cniVersion":"0.4.0","name":"net","type":"bridge"},{"type":"istio-cni"}]}
}

func ExampleRemove() {
	doc := []byte(`{"name": "net", "plugins": [ {"type": "bridge"}, {"type": "istio-cni"} ]}`)
	edit, err := conflist.Remove(doc, "istio-cni")
	fmt.Printf("%s %v\n", edit.Out, err)
	// Output:
	// {"name": "net", "plugins": [ {"type": "bridge"} ]} <nil>
}

func ExampleFind() {
	doc := []byte(`{"name": "net", "plugins": [{"type": "bridge"}, {"type": "istio-cni", "plugin_log_level": "debug"}]}`)
	p, ok, err := conflist.Find(doc, "istio-cni")
	fmt.Printf("%s %v %v\n", p.Body, ok, err)
	// Output:
	// {"type": "istio-cni", "plugin_log_level": "debug"} true <nil>
}

// In a program, the directory is os.DirFS("/etc/cni/net.d").
func ExamplePrimary() {
	dir := fstest.MapFS{
		"00-broken.conflist":    {Data: []byte(`{"name": "net", "plugins": []}`)},
		"10-calico.conflist":    {Data: []byte(`{"name": "net", "plugins": [{"type": "calico"}]}`)},
		"20-bridge.conf":        {Data: []byte(`{"name": "net", "type": "bridge"}`)},
		"05-calico.conflist.bk": {Data: []byte(`{"name": "net", "plugins": [{"type": "calico"}]}`)},
	}
	fmt.Println(conflist.Primary(dir))
	// Output:
	// 10-calico.conflist <nil>
}

func ExampleNoPrimaryError() {
	dir := fstest.MapFS{"10-calico.conflist": {Data: []byte(`{"plugins": [{"type": "calico"}]}`)}}
	_, err := conflist.Primary(dir)
	fmt.Println(err)
	fmt.Println(errors.Is(err, conflist.ErrNoPrimary))
	// Output:
	// no valid CNI network configuration: correct one of these: 10-calico.conflist: it has no "name" that is a string
	// true
}

func ExampleSyntaxError() {
	doc := []byte("{\n  \"name\": \"net\",\n  \"plugins\": [{\"type\": \"bridge\"},]\n}\n")
	_, err := conflist.Remove(doc, "istio-cni")
	fmt.Println(err)
	// Output:
	// line 3, column 34: invalid character ']' looking for beginning of value
}
