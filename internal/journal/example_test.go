// SPDX-License-Identifier: Apache-2.0

package journal_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/meshcni/meshcni/interception"
	"github.com/meshcni/meshcni/internal/journal"
)

func Example() {
	run, err := os.MkdirTemp("", "run")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(run)
	j := journal.Journal{Directory: filepath.Join(run, "journal")}
	cart := journal.Attachment{Network: "pods", ContainerID: "0a1b2c", Interface: "eth0"}
	err = j.Write(journal.Record{Attachment: cart, Namespace: "shop", Name: "cart-0", Plan: &interception.Plan{Owner: "my-mesh"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	record, err := j.Read(cart)
	fmt.Println(record.Name, record.Plan.Owner, err)

	forgotten, err := j.Keep("pods", nil) // no container is left
	fmt.Println(forgotten, err)
	// Output:
	// cart-0 my-mesh <nil>
	// [pods 0a1b2c eth0] <nil>
}
