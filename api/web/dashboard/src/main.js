document.getElementById("main").textContent = "x";
