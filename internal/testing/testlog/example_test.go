// SPDX-License-Identifier: Apache-2.0

package testlog_test

import (
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/meshcni/meshcni/internal/testing/testlog"
)

func Example() {
	log := testlog.New()
	go slog.New(slog.NewTextHandler(log, nil)).Info("installed")
	fmt.Println(log.Await(time.Minute, func() bool { return strings.Contains(log.String(), "msg=installed") }))
	fmt.Println(log.Await(0, func() bool { return strings.Contains(log.String(), "msg=removed") }))
	// Output:
	// true
	// false
}
